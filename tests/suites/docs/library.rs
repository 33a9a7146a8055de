//! Code in the documentation, which is that of the examples.

use crate::markdown::manual;
use std::path::Path;

#[test]
fn code_is_that_of_the_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut examples: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    for document in manual() {
        for block in document.blocks.iter().filter(|block| block.info == "rust") {
            let same = examples.iter().position(|example| *example == block.text);
            let place = || format!("{}:{}: is no example", document.path.display(), block.line);
            examples.remove(same.unwrap_or_else(|| panic!("{}", place())));
        }
    }
    assert!(examples.is_empty(), "an example that no document shows:\n{}", examples[0]);
}
