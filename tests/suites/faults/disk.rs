//! A disk as it is after a power cut: what was written and not made durable may be there, in part, or not at all.
//!
//! The model is weaker than any file system in use. Data that no `fsync` of the file followed may be lost, torn, or zeros.
//! Names that no `fsync` of their folder followed may have any of their changes done and others not, in any order. One
//! change is whole: a rename has happened, or it has not.

use crate::operation::Operation;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

/// Files by path, and folders (no content).
pub type Content = BTreeMap<String, Option<Bytes>>;

/// What a file holds; cheap to copy, to hash and to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    hash: u64,
    data: Arc<Vec<u8>>,
}

impl Bytes {
    pub fn new(data: Vec<u8>) -> Bytes {
        let mut hasher = DefaultHasher::new();
        data.hash(&mut hasher);
        Bytes { hash: hasher.finish(), data: Arc::new(data) }
    }

    pub fn get(&self) -> &[u8] {
        &self.data
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// What has become of data that was not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// As before.
    Lost,
    /// All there.
    Written,
    /// The first half of the writes, and half of the next.
    Torn,
    /// The length is right, the data are zeros.
    Zeros,
}

impl Data {
    pub const ALL: [Data; 4] = [Data::Lost, Data::Written, Data::Torn, Data::Zeros];
}

/// Files and folders by number.
#[derive(Debug, Clone)]
pub struct Disk {
    nodes: Vec<Node>,
    /// Changes of names that are not durable, in their order.
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Node {
    File { durable: Bytes, now: Arc<Vec<u8>>, writes: Vec<Write> },
    Folder { durable: Names, now: Names },
}

type Names = BTreeMap<String, usize>;

#[derive(Debug, Clone)]
enum Write {
    At(usize, Vec<u8>),
    Length(usize),
}

/// Names that change together: folder, name, and what it stands for then.
type Change = Vec<(usize, String, Option<usize>)>;

const ROOT: usize = 0;

impl Disk {
    /// What lies below a folder, all durable.
    pub fn load(folder: &Path) -> Disk {
        let mut disk = Disk { nodes: Vec::new(), pending: Vec::new() };
        disk.load_folder(folder);
        disk
    }

    fn load_folder(&mut self, folder: &Path) -> usize {
        let id = self.nodes.len();
        self.nodes.push(Node::Folder { durable: Names::new(), now: Names::new() });
        let mut names = Names::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let node = match path.is_dir() {
                true => self.load_folder(&path),
                false => self.add_file(fs::read(&path).unwrap()),
            };
            names.insert(path.file_name().unwrap().to_str().unwrap().into(), node);
        }
        self.nodes[id] = Node::Folder { durable: names.clone(), now: names };
        id
    }

    fn add_file(&mut self, content: Vec<u8>) -> usize {
        let durable = Bytes::new(content);
        self.nodes.push(Node::File { now: Arc::clone(&durable.data), durable, writes: Vec::new() });
        self.nodes.len() - 1
    }

    /// The names in a folder as the program sees them.
    fn names(&self, folder: usize) -> &Names {
        match &self.nodes[folder] {
            Node::Folder { now, .. } => now,
            Node::File { .. } => panic!("not a folder"),
        }
    }

    /// Folder and last name of a path.
    fn place<'a>(&self, path: &'a str) -> (usize, &'a str) {
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        (self.find(folder).unwrap_or_else(|| panic!("`{folder}` is not there")), name)
    }

    /// What a path stands for, as the program sees it.
    fn find(&self, path: &str) -> Option<usize> {
        path.split('/').filter(|part| *part != ".").try_fold(ROOT, |at, part| self.names(at).get(part).copied())
    }

    /// The content of a file as the program sees it.
    pub fn read(&self, path: &str) -> Option<&[u8]> {
        match &self.nodes[self.find(path)?] {
            Node::File { now, .. } => Some(now),
            Node::Folder { .. } => None,
        }
    }

    fn change(&mut self, change: Change) {
        apply_names(&mut self.nodes, &change, |node| match node {
            Node::Folder { now, .. } => now,
            Node::File { .. } => panic!("not a folder"),
        });
        self.pending.push(change);
    }

    fn write(&mut self, path: &str, write: Write) {
        // A file without a name is nothing that could be found later.
        let Some(id) = self.find(path) else { return };
        let Node::File { now, writes, .. } = &mut self.nodes[id] else { panic!("`{path}` is a folder") };
        apply_write(Arc::make_mut(now), &write);
        writes.push(write);
    }

    /// Does what the program did.
    pub fn apply(&mut self, o: &Operation) {
        if o.result < 0 {
            return;
        }
        match o.name.as_str() {
            "open" => {
                let there = self.find(&o.path);
                if there.is_none() && o.flags & libc::O_CREAT != 0 {
                    let file = self.add_file(Vec::new());
                    let (folder, name) = self.place(&o.path);
                    self.change(vec![(folder, name.into(), Some(file))]);
                } else if o.flags & libc::O_TRUNC != 0 {
                    self.write(&o.path, Write::Length(0));
                }
            }
            "write" => self.write(&o.path, Write::At(o.offset as usize, o.data.clone())),
            "truncate" => self.write(&o.path, Write::Length(o.offset as usize)),
            "fsync" => self.sync(&o.path),
            "mkdir" => {
                self.nodes.push(Node::Folder { durable: Names::new(), now: Names::new() });
                let (folder, name) = self.place(&o.path);
                self.change(vec![(folder, name.into(), Some(self.nodes.len() - 1))]);
            }
            "unlink" | "rmdir" => {
                let (folder, name) = self.place(&o.path);
                self.change(vec![(folder, name.into(), None)]);
            }
            "rename" => {
                let (from, to) = (self.place(&o.path), self.place(&o.other));
                let node = self.find(&o.path);
                self.change(vec![(from.0, from.1.into(), None), (to.0, to.1.into(), node)]);
            }
            "link" => {
                let (folder, name) = self.place(&o.other);
                self.change(vec![(folder, name.into(), self.find(&o.path))]);
            }
            "stat" | "read" | "readdir" | "opendir" | "close" | "lock" | "mmap" | "realpath" => (),
            other => panic!("what `{other}` does to a disk is not known"),
        }
    }

    /// Makes a file's data, or a folder's names, durable.
    fn sync(&mut self, path: &str) {
        let Some(id) = self.find(path) else { return };
        match &mut self.nodes[id] {
            Node::File { durable, now, writes } => {
                if !writes.is_empty() {
                    *durable = Bytes::new(now.to_vec());
                    writes.clear();
                }
            }
            Node::Folder { .. } => {
                let (done, left) = std::mem::take(&mut self.pending)
                    .into_iter()
                    .partition::<Vec<_>, _>(|change| change.iter().any(|(folder, ..)| *folder == id));
                self.pending = left;
                for change in &done {
                    apply_names(&mut self.nodes, change, durable_names);
                }
            }
        }
    }

    /// The disk after a cut at this moment, in many of the ways in which it may be.
    pub fn after_a_cut(&self) -> Vec<Content> {
        let n = self.pending.len();
        // The first ones, one alone, all but one.
        let mut done: Vec<Vec<bool>> = (0..=n).map(|first| (0..n).map(|i| i < first).collect()).collect();
        for one in 0..n {
            done.push((0..n).map(|i| i == one).collect());
            done.push((0..n).map(|i| i != one).collect());
        }
        done.sort();
        done.dedup();
        let mut found = Vec::new();
        for done in done {
            let mut disk = self.clone();
            for change in self.pending.iter().zip(done).filter_map(|(change, done)| done.then_some(change)) {
                apply_names(&mut disk.nodes, change, durable_names);
            }
            found.extend(Data::ALL.map(|data| {
                let mut content = Content::new();
                disk.collect(ROOT, "", data, &mut content);
                content
            }));
        }
        found
    }

    fn collect(&self, folder: usize, prefix: &str, data: Data, into: &mut Content) {
        let Node::Folder { durable, .. } = &self.nodes[folder] else { panic!("not a folder") };
        for (name, id) in durable {
            let path = format!("{prefix}{name}");
            match &self.nodes[*id] {
                Node::File { durable, now, writes } => {
                    drop(into.insert(path, Some(survivor(durable, now, writes, data))));
                }
                Node::Folder { .. } => {
                    into.insert(path.clone(), None);
                    self.collect(*id, &format!("{path}/"), data, into);
                }
            }
        }
    }
}

fn durable_names(node: &mut Node) -> &mut Names {
    match node {
        Node::Folder { durable, .. } => durable,
        Node::File { .. } => panic!("not a folder"),
    }
}

fn apply_names(nodes: &mut [Node], change: &Change, of: impl Fn(&mut Node) -> &mut Names) {
    for (folder, name, node) in change {
        let names = of(&mut nodes[*folder]);
        match node {
            Some(id) => drop(names.insert(name.clone(), *id)),
            None => drop(names.remove(name)),
        }
    }
}

fn apply_write(content: &mut Vec<u8>, write: &Write) {
    match write {
        Write::At(at, data) => {
            let end = at + data.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*at..end].copy_from_slice(data);
        }
        Write::Length(n) => content.resize(*n, 0),
    }
}

fn survivor(durable: &Bytes, now: &[u8], writes: &[Write], data: Data) -> Bytes {
    if writes.is_empty() || data == Data::Lost {
        return durable.clone();
    }
    let mut content = durable.get().to_vec();
    match data {
        Data::Lost => (),
        Data::Written => content = now.to_vec(),
        Data::Zeros => {
            content.truncate(now.len());
            content.resize(now.len(), 0);
        }
        Data::Torn => {
            let half = writes.len() / 2;
            writes[..half].iter().for_each(|w| apply_write(&mut content, w));
            if let Some(Write::At(at, data)) = writes.get(half) {
                apply_write(&mut content, &Write::At(*at, data[..data.len() / 2].to_vec()));
            }
        }
    }
    Bytes::new(content)
}

/// Puts the files of a disk into a folder, which is empty.
pub fn put(content: &Content, folder: &Path) {
    for (path, bytes) in content {
        match bytes {
            Some(bytes) => fs::write(folder.join(path), bytes.get()).unwrap(),
            None => fs::create_dir(folder.join(path)).unwrap(),
        }
    }
}
