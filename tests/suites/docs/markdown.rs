//! Just enough of Markdown: fenced blocks, and the text around them.

use std::path::{Path, PathBuf};

/// A document of the repository.
pub struct Document {
    /// Its path from the repository's root.
    pub path: PathBuf,
    /// Its fenced blocks.
    pub blocks: Vec<Block>,
    /// The lines outside of blocks.
    pub prose: String,
}

/// A fenced block.
pub struct Block {
    /// What follows the opening fence: a language, and what else is said of the block.
    pub info: String,
    /// The line of the fence, from 1.
    pub line: usize,
    /// The lines between the fences.
    pub text: String,
}

/// The folders of what users read.
const DOCS: &[&str] = &["docs", PAGES, "docs/guide"];

/// The folder of the pages about the language.
pub const PAGES: &str = "docs/config";

/// The pages about the language, which have the tables of options.
pub fn pages() -> Vec<Document> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    markdown_in(root, PAGES).into_iter().map(|path| read(root, path)).collect()
}

/// The documents that users read.
pub fn manual() -> Vec<Document> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![PathBuf::from("README.md")];
    paths.extend(DOCS.iter().flat_map(|folder| markdown_in(root, folder)));
    paths.into_iter().map(|path| read(root, path)).collect()
}

/// All documents.
pub fn all() -> Vec<Document> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["", "data", "scripts"]
        .iter()
        .chain(DOCS)
        .flat_map(|folder| markdown_in(root, folder))
        .map(|path| read(root, path))
        .collect()
}

/// One of them.
pub fn document(path: &str) -> Document {
    read(Path::new(env!("CARGO_MANIFEST_DIR")), path.into())
}

fn markdown_in(root: &Path, folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Path::new(folder).join(entry.unwrap().file_name()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty() || folder == "scripts", "no Markdown in `{folder}`");
    paths
}

fn read(root: &Path, path: PathBuf) -> Document {
    let text = std::fs::read_to_string(root.join(&path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut document = Document { path, blocks: Vec::new(), prose: String::new() };
    let mut open: Option<Block> = None;
    for (i, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                open = Some(Block { info: info.trim().into(), line: i + 1, text: String::new() });
            }
            (Some(_), Some(_)) => document.blocks.extend(open.take()),
            (None, Some(block)) => block.text.extend([line, "\n"]),
            (None, None) => document.prose.extend([line, "\n"]),
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", document.path.display());
    document
}

impl Document {
    /// The code spans of the text outside of blocks.
    pub fn spans(&self) -> Vec<&str> {
        self.prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
    }
}
