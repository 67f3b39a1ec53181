//! The modules of a crate and their references to its top-level modules.

use crate::tokens::{Token, end_of_group, tokens_outside_tests};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A place where one top-level module names another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub from: String,
    pub to: String,
    /// File, relative to the directory of the crate root, and line.
    pub place: String,
}

/// A crate, read from its root along its `mod` declarations.
pub struct Crate {
    directory: PathBuf,
    /// The top-level module that each name of the crate root leads to: a module itself, or a re-export.
    names: BTreeMap<String, String>,
    pub references: BTreeSet<Reference>,
}

impl Crate {
    pub fn read(root: &Path) -> Self {
        let tokens = tokens_outside_tests(&fs::read_to_string(root).unwrap());
        let directory = root.parent().unwrap().to_owned();
        let modules = declared_modules(&tokens);
        let mut read =
            Self { directory, names: names_of_root(&tokens, &modules), references: BTreeSet::new() };
        for module in modules {
            read.read_module(&[module]);
        }
        read
    }

    /// Reads the file of a module and those of the modules below it.
    fn read_module(&mut self, path: &[String]) {
        let stem = path.iter().fold(self.directory.clone(), |directory, name| directory.join(name));
        let files = [stem.with_extension("rs"), stem.join("mod.rs")];
        let Some(file) = files.iter().find(|file| file.is_file()) else {
            panic!("module {} has no file", path.join("::"))
        };
        let tokens = tokens_outside_tests(&fs::read_to_string(file).unwrap());
        let place = file.strip_prefix(&self.directory).unwrap().display().to_string();
        for (name, line) in names_at_root(&tokens, path.len()) {
            let Some(to) = self.names.get(&name).filter(|to| **to != path[0]) else { continue };
            let place = format!("{place}:{line}");
            self.references.insert(Reference { from: path[0].clone(), to: to.clone(), place });
        }
        for module in declared_modules(&tokens) {
            self.read_module(&[path, &[module]].concat());
        }
    }
}

/// The modules in files of their own that a file declares.
fn declared_modules(tokens: &[Token]) -> Vec<String> {
    let declarations = tokens.windows(3).filter(|window| window[0].text == "mod" && window[2].text == ";");
    declarations.map(|window| window[1].text.clone()).collect()
}

/// The names of the crate root that lead to its modules.
fn names_of_root(tokens: &[Token], modules: &[String]) -> BTreeMap<String, String> {
    let mut names: BTreeMap<_, _> = modules.iter().map(|module| (module.clone(), module.clone())).collect();
    for at in (0..tokens.len()).filter(|at| tokens[*at].text == "use") {
        for path in paths(tokens, at + 1) {
            let path = path.strip_prefix(&["crate".to_owned()]).unwrap_or(&path);
            let path = path.strip_prefix(&["self".to_owned()]).unwrap_or(path);
            if let ([module, .., name], true) =
                (path, path.first().is_some_and(|first| modules.contains(first)))
            {
                names.insert(name.clone(), module.clone());
            }
        }
    }
    names
}

/// The names of the crate root that a module uses, by `crate::` or by `super::`, with their lines. `depth` is the number
/// of modules from the crate root to this one.
fn names_at_root(tokens: &[Token], depth: usize) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    let mut ends_of_inline_modules: Vec<usize> = Vec::new();
    for at in 0..tokens.len() {
        ends_of_inline_modules.retain(|end| at < *end);
        let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
        if text(at) == "mod" && text(at + 2) == "{" {
            ends_of_inline_modules.push(end_of_group(tokens, at + 2));
        }
        if at > 0 && text(at - 1) == ":" {
            continue;
        }
        let start = match text(at) {
            "crate" => at,
            "super" => at + 3 * (depth + ends_of_inline_modules.len() - 1),
            _ => continue,
        };
        let is_root = (at..=start).step_by(3).all(|index| ["crate", "super"].contains(&text(index)));
        if is_root && [text(start + 1), text(start + 2)] == [":", ":"] {
            let first_names = paths(tokens, start + 3).into_iter().filter_map(|path| path.into_iter().next());
            names.extend(first_names.map(|name| (name, tokens[at].line)));
        }
    }
    names
}

/// The paths of a use tree, or the one path of an expression, that begin at a token. A renamed path ends with its new
/// name.
fn paths(tokens: &[Token], start: usize) -> Vec<Vec<String>> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    if text(start) == "{" {
        let end = end_of_group(tokens, start);
        let mut all = Vec::new();
        let mut at = start + 1;
        while at + 1 < end {
            all.extend(paths(tokens, at));
            while at + 1 < end && text(at) != "," {
                at = if text(at) == "{" { end_of_group(tokens, at) } else { at + 1 };
            }
            at += 1;
        }
        return all;
    }
    let first = text(start).to_owned();
    if [text(start + 1), text(start + 2)] == [":", ":"] && text(start + 3) != "<" {
        let rest = paths(tokens, start + 3);
        return rest.into_iter().map(|path| [vec![first.clone()], path].concat()).collect();
    }
    if text(start + 1) == "as" { vec![vec![first, text(start + 2).to_owned()]] } else { vec![vec![first]] }
}

#[cfg(test)]
mod tests {
    use super::{Crate, Reference};
    use std::fs;

    /// The references of a crate with these files, as `from to place`.
    fn references(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let read = Crate::read(&directory.path().join("lib.rs"));
        read.references
            .into_iter()
            .map(|Reference { from, to, place }| format!("{from} {to} {place}"))
            .collect()
    }

    #[test]
    fn paths_and_use_trees_are_references() {
        let a = "use crate::{b::{X, Y}, c as d};\nfn f() { crate::e::<T>::g(); x::crate_::c; }";
        let files = [("lib.rs", "mod a; mod b; mod c; mod e; mod g;"), ("a.rs", a)];
        let empty = ["b.rs", "c.rs", "e.rs", "g.rs"].map(|file| (file, ""));
        assert_eq!(references(&[&files[..], &empty].concat()), ["a b a.rs:1", "a c a.rs:1", "a e a.rs:2"]);
    }

    #[test]
    fn super_is_a_reference_where_it_leads_to_the_crate_root() {
        let below = "use super::inner; use super::super::b;\nmod inline { use super::super::super::b; use super::super::b; }";
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod below; use super::{b, inner};"),
            ("a/below.rs", below),
            ("b.rs", ""),
        ];
        assert_eq!(references(&files), ["a b a.rs:1", "a b a/below.rs:1", "a b a/below.rs:2"]);
    }

    #[test]
    fn reexports_of_the_crate_root_lead_to_their_modules() {
        let root = "pub mod a; mod b; mod c; pub use b::{X as Renamed, Y}; pub use self::c::Z; use std::fmt;";
        let a = "use crate::Renamed;\nuse crate::X;\nuse crate::Z;\nuse crate::fmt;";
        let files = [("lib.rs", root), ("a.rs", a), ("b.rs", ""), ("c.rs", "")];
        assert_eq!(references(&files), ["a b a.rs:1", "a c a.rs:3"]);
    }

    #[test]
    fn test_code_has_no_references() {
        let a = "#[cfg(test)] mod tests;\n#[cfg(test)] mod more { use crate::b; }";
        let files = [("lib.rs", "mod a; mod b; #[cfg(test)] mod c;"), ("a/mod.rs", a), ("b.rs", "")];
        let tests = [("a/tests.rs", "use crate::b;"), ("c.rs", "use crate::{a, b};")];
        assert!(references(&[&files[..], &tests].concat()).is_empty());
    }
}
