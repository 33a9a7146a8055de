//! Modules that name one another in a circle can only be read, and changed, together.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{KERNELS, Module, PROGRAM, Tree};
use crate::source::{below, root};

/// What the children of a module name among themselves: who, whom, and where.
type Siblings = BTreeMap<String, BTreeMap<String, String>>;

/// Circles among the children of a module, at every level, each with the places that make it one.
fn circles(tree: &Tree) -> Vec<String> {
    let mut folders: BTreeMap<Module, Siblings> = BTreeMap::new();
    for edge in &tree.edges {
        let common = edge.from.iter().zip(&edge.to).take_while(|(a, b)| a == b).count();
        // A module and what is inside of it are one.
        if let (Some(from), Some(to)) = (edge.from.get(common), edge.to.get(common)) {
            let siblings = folders.entry(edge.from[..common].to_vec()).or_default();
            let place = || format!("{}:{} names {}", edge.path.display(), edge.line, edge.to.join("::"));
            siblings.entry(from.clone()).or_default().entry(to.clone()).or_insert_with(place);
        }
    }
    let mut found = Vec::new();
    for (folder, siblings) in folders {
        let mut seen = BTreeSet::new();
        for name in siblings.keys() {
            // All that it leads to and that leads back.
            let circle: BTreeSet<&str> = reached(&siblings, name)
                .into_iter()
                .filter(|other| reached(&siblings, other).contains(name.as_str()))
                .collect();
            if circle.contains(name.as_str()) && seen.insert(circle.clone()) {
                let names: Vec<&str> = circle.iter().copied().collect();
                let folder = if folder.is_empty() { "crate".to_owned() } else { folder.join("::") };
                found.push(format!("in `{folder}`: {}", names.join(", ")));
                let places = names.iter().flat_map(|name| &siblings[*name]);
                found.extend(
                    places.filter(|(to, _)| circle.contains(to.as_str())).map(|(_, place)| format!("    {place}")),
                );
            }
        }
    }
    found
}

/// The names that one leads to, over any number of others.
fn reached<'a>(siblings: &'a Siblings, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        for to in siblings.get(name).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    reached
}

#[test]
fn no_modules_name_one_another_in_a_circle() {
    let benches = root().join("benches");
    let mut found = circles(&PROGRAM);
    found.extend(circles(&KERNELS));
    found.extend(["pytorch", "sweeps"].iter().flat_map(|bench| circles(&Tree::new(below(&benches.join(bench))))));
    for package in ["crates/jpeg/src", "crates/mpi/src"] {
        found.extend(circles(&Tree::new(below(&root().join(package)))));
    }
    assert!(
        found.is_empty(),
        "move what both sides name into a module of its own, or hand it over as an argument:\n{}",
        found.join("\n")
    );
}

#[test]
fn circles_are_found() {
    let tree = |files: &[(&str, &str)]| Tree::new(files.iter().map(|(path, text)| (path.into(), (*text).to_owned())));
    let names = |files: &[(&str, &str)]| -> Vec<String> {
        circles(&tree(files)).into_iter().filter(|line| !line.starts_with(' ')).collect()
    };
    let there =
        |text| [("a.rs", text), ("b/mod.rs", "pub struct B;"), ("b/c.rs", "use crate::a::A;"), ("lib.rs", "mod a;")];
    for text in [
        "use crate::b::c::C;",
        "use crate::{b::{B, self as other}, x};",
        "fn f() { let x = super::b::f::<u8>(\"\"); }",
        "struct A(\n    crate::b::B,\n);",
    ] {
        assert_eq!(names(&there(text)), ["in `crate`: a, b"], "{text}");
    }
    for text in [
        "// crate::b::C",
        "use crate::d::D;",
        "const A: &str = \"crate::b\";",
        "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}",
    ] {
        assert!(names(&there(text)).is_empty(), "{text}");
    }
    // What another module hands on is where it is made.
    let handed_on = [
        ("f/mod.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;"),
        ("f/a.rs", "use super::B;\npub struct A;"),
        ("f/b.rs", "use super::A;\npub struct B;"),
    ];
    assert_eq!(names(&handed_on), ["in `f`: a, b"]);
}
