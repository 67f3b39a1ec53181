//! The command line of slurmd: the configuration server and the `--conf` description of its node.
//!
//! The images evaluate the arguments once more in a shell. The description is therefore wrapped in single quotes that
//! are part of the argument; only our own reference to the topology variable may end them.

use crate::value::ConfName;
use std::collections::{BTreeMap, BTreeSet};

const TOPOLOGY_VARIABLE: &str = r#"'"$SLINKY_TOPOLOGY"'"#;

/// Why a text is not a list of `Key=Value` items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtraItemError {
    /// An item without a key and `=`.
    #[error("malformed --conf item {0:?}: expected Key=Value")]
    Malformed(String),
    /// An item with a character that a shell would interpret.
    #[error("malformed --conf item {item:?}: must not contain {character:?}")]
    Character {
        /// The item.
        item: String,
        /// The character.
        character: char,
    },
}

/// The user's additions to the description of a node: values by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtraItems(BTreeMap<String, Vec<String>>);

impl ExtraItems {
    /// Parses items separated by blanks. Keys that differ only in case are the same key; their values are joined.
    pub fn parse(text: &str) -> Result<Self, ExtraItemError> {
        let mut items: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for item in text.split_whitespace() {
            let (key, values) = item
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| ExtraItemError::Malformed(item.to_owned()))?;
            if let Some(character) = item.chars().find(|c| c.is_control() || "'\"`$\\".contains(*c)) {
                return Err(ExtraItemError::Character { item: item.to_owned(), character });
            }
            items.entry(normalised(key)).or_default().extend(values.split(',').map(str::to_owned));
        }
        Ok(Self(items))
    }

    /// All values of a key, given in its normalised form.
    fn values(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }
}

/// `CoreSpecCount` becomes `Corespeccount`: Slurm ignores case, and equal keys become identical.
fn normalised(key: &str) -> String {
    let mut characters = key.chars();
    characters.next().into_iter().flat_map(char::to_uppercase).collect::<String>()
        + &characters.as_str().to_lowercase()
}

/// The arguments of slurmd in a worker pod of the node set `name`; it fetches its configuration from `conf_server`.
pub fn slurmd_args(name: &ConfName, conf_server: &str, extra: &ExtraItems) -> Vec<String> {
    ["-Z", "--conf-server", conf_server, "--conf", &format!("'{}'", node_description(name, extra))]
        .map(str::to_owned)
        .to_vec()
}

fn node_description(name: &ConfName, extra: &ExtraItems) -> String {
    let mut values: BTreeMap<&str, String> =
        extra.0.iter().map(|(key, values)| (key.as_str(), values.join(","))).collect();
    values.remove("Feature");
    values.insert("Features", features(name, extra));
    values.entry("Topology").or_insert_with(|| TOPOLOGY_VARIABLE.to_owned());
    let items: BTreeSet<String> = values.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Vec::from_iter(items).join(" ")
}

/// The features of a worker: the name of its node set, by which slurm.conf selects it, and the user's.
fn features(name: &ConfName, extra: &ExtraItems) -> String {
    let user = extra.values("Feature").iter().chain(extra.values("Features")).map(String::as_str);
    let features: BTreeSet<&str> =
        user.filter(|feature| !feature.is_empty()).chain([name.as_ref()]).collect();
    Vec::from_iter(features).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("gpu", "", r#"'Features=gpu Topology='"$SLINKY_TOPOLOGY"''"#)]
    #[case("gpu", "Weight=10 feature=a", r#"'Features=a,gpu Topology='"$SLINKY_TOPOLOGY"' Weight=10'"#)]
    #[case("gpu", "Topology=switch-topo:s1", "'Features=gpu Topology=switch-topo:s1'")]
    #[case("foo", "", r#"'Features=foo Topology='"$SLINKY_TOPOLOGY"''"#)]
    #[case("gpu", "  Weight=5\n\tFeature=a ", r#"'Features=a,gpu Topology='"$SLINKY_TOPOLOGY"' Weight=5'"#)]
    #[case(
        "zeta",
        "Weight=10 feature=gpu,fast Gres=gpu:4 topology=t",
        "'Features=fast,gpu,zeta Gres=gpu:4 Topology=t Weight=10'"
    )]
    #[case("g", "Feature=b,,a Features=a,g topology=t", "'Features=a,b,g Topology=t'")]
    #[case("g", "CoreSpecCount=1 corespeccount=2 topology=t", "'Corespeccount=1,2 Features=g Topology=t'")]
    #[case("g", "Gres=gpu:a=1 topology=t", "'Features=g Gres=gpu:a=1 Topology=t'")]
    fn arguments_describe_the_node(#[case] name: &str, #[case] extra: &str, #[case] conf: &str) {
        let name = ConfName::new("name", name).unwrap();
        let args = slurmd_args(&name, "ctl.ns:6817", &ExtraItems::parse(extra).unwrap());
        assert_eq!(args, ["-Z", "--conf-server", "ctl.ns:6817", "--conf", conf]);
    }

    #[rstest]
    #[case("Weight10 Feature=a", r#"malformed --conf item "Weight10": expected Key=Value"#)]
    #[case("Weight=5 nope Feature=a", r#"malformed --conf item "nope": expected Key=Value"#)]
    #[case("=5", r#"malformed --conf item "=5": expected Key=Value"#)]
    #[case("Gres=a';reboot;'", r#"malformed --conf item "Gres=a';reboot;'": must not contain '\''"#)]
    #[case("Gres=$(id)", r#"malformed --conf item "Gres=$(id)": must not contain '$'"#)]
    fn error_quotes_the_invalid_item(#[case] extra: &str, #[case] message: &str) {
        assert_eq!(ExtraItems::parse(extra).unwrap_err().to_string(), message);
    }

    #[test]
    fn feature_and_features_are_separate_keys_until_rendered() {
        let items = ExtraItems::parse("Features=a,b,c feature=d").unwrap();
        assert_eq!(items.values("Features"), ["a", "b", "c"]);
        assert_eq!(items.values("Feature"), ["d"]);
        assert!(items.values("Weight").is_empty());
    }
}
