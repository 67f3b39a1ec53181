//! Label selectors of list requests.

use super::refusal::Refusal;
use kube::core::{Expression, Selector, SelectorExt};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Parses a selector.
pub(super) fn parse(text: &str) -> Result<Selector, Refusal> {
    let requirements = split(text).into_iter().map(str::trim).filter(|requirement| !requirement.is_empty());
    requirements
        .map(|requirement| parse_requirement(requirement).ok_or(requirement))
        .collect::<Result<_, _>>()
        .map_err(|requirement: &str| {
            Refusal::bad_request(&format!("unable to parse requirement: {requirement:?}"))
        })
}

/// Whether a selector matches the labels of an object.
pub(super) fn selects(selector: &Selector, object: &Value) -> bool {
    let labels = BTreeMap::deserialize(&object["metadata"]["labels"]).unwrap_or_default();
    selector.matches(&labels)
}

/// Splits requirements at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    text.split(|character| {
        is_inside = (is_inside || character == '(') && character != ')';
        character == ',' && !is_inside
    })
    .collect()
}

fn parse_requirement(text: &str) -> Option<Expression> {
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(parse_key(key)?, value.trim().to_owned()));
    }
    if let Some((key, value)) = text.split_once("==").or(text.split_once('=')) {
        return Some(Expression::Equal(parse_key(key)?, value.trim().to_owned()));
    }
    if let Some((key, values)) = text.split_once(" notin ") {
        return Some(Expression::NotIn(parse_key(key)?, parse_values(values)?));
    }
    if let Some((key, values)) = text.split_once(" in ") {
        return Some(Expression::In(parse_key(key)?, parse_values(values)?));
    }
    match text.strip_prefix('!') {
        Some(key) => Some(Expression::DoesNotExist(parse_key(key)?)),
        None => Some(Expression::Exists(parse_key(text)?)),
    }
}

fn parse_key(text: &str) -> Option<String> {
    let text = text.trim();
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    (!text.is_empty() && text.bytes().all(is_key)).then(|| text.to_owned())
}

fn parse_values(text: &str) -> Option<BTreeSet<String>> {
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::{parse, selects};
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case("", true)]
    #[case("a=1", true)]
    #[case("a==1", true)]
    #[case("a=2", false)]
    #[case("a!=1", false)]
    #[case("c!=1", true)]
    #[case("a", true)]
    #[case("c", false)]
    #[case("!a", false)]
    #[case("!c", true)]
    #[case("a in (1,2)", true)]
    #[case("a in ( 2 , 3 )", false)]
    #[case("c in (1)", false)]
    #[case("a notin (2,3)", true)]
    #[case("a notin (1)", false)]
    #[case("c notin (1)", true)]
    #[case("a in (1,2),b=", true)]
    #[case("a in (1,2),b=x", false)]
    #[case("x.y/z", true)]
    fn object_is_selected_if_all_requirements_match(#[case] text: &str, #[case] selected: bool) {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "", "x.y/z": "v"}}});
        assert_eq!(selects(&parse(text).unwrap(), &object), selected, "{text}");
    }

    #[rstest]
    #[case("a in 1")]
    #[case("a b")]
    #[case("=1")]
    fn invalid_selector_is_a_bad_request(#[case] text: &str) {
        assert_eq!(parse(text).unwrap_err().code, 400, "{text}");
    }
}
