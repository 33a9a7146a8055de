//! The kernels' sources, how they are compiled, and the hash of both.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The NVRTC that makes what travels in the binary: its PTX is read by drivers from release 530 on.
pub const PTX_VERSION: (i32, i32) = (12, 1);

/// A compute capability that kernels are compiled for, as 80 for 8.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Architecture(u32);

impl Architecture {
    /// Those whose PTX travels in the binary.
    pub const PACKED: [Architecture; 2] = [Architecture(75), Architecture(80)];
    /// The one that is looked at where no source has changed.
    pub const CHECKED: Architecture = Architecture(80);
    /// All that are looked at where one has.
    pub const ALL: [Architecture; 3] = [Architecture(75), Architecture(80), Architecture(90)];
    /// Those whose figures are in `docs/kernels.md`.
    pub const DOCUMENTED: [Architecture; 2] = [Architecture(80), Architecture(90)];

    /// `sm_80`
    pub fn name(self) -> String {
        format!("sm_{}", self.0)
    }

    /// 80
    pub fn capability(self) -> u32 {
        self.0
    }

    /// NVRTC's options. A real architecture gives both its PTX and what the assembler says of it.
    pub fn options(self) -> Vec<String> {
        vec![format!("--gpu-architecture={}", self.name()), "-std=c++17".into(), "--ptxas-options=-v".into()]
    }
}

/// The texts in the folder `kernels/cuda`, by name without suffix for modules, and with it for headers.
pub struct Sources {
    /// `*.cu`
    pub modules: BTreeMap<String, String>,
    /// `*.cuh`
    pub headers: BTreeMap<String, String>,
}

impl Sources {
    /// Reads them all.
    pub fn read() -> Sources {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/cuda");
        let mut sources = Sources { modules: BTreeMap::new(), headers: BTreeMap::new() };
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = || fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            if let Some(module) = name.strip_suffix(".cu") {
                sources.modules.insert(module.to_owned(), text());
            } else if name.ends_with(".cuh") {
                sources.headers.insert(name, text());
            }
        }
        assert!(!sources.modules.is_empty() && !sources.headers.is_empty(), "{} has no kernels", folder.display());
        sources
    }

    /// SHA-256 of all that `module`'s PTX for `architecture` depends on, in hexadecimal digits.
    pub fn hash(&self, module: &str, architecture: Architecture) -> String {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            // With their lengths, so that no text can pass for the end of one and the beginning of the next.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(&format!("NVRTC {}.{}", PTX_VERSION.0, PTX_VERSION.1));
        architecture.options().iter().for_each(|option| part(option));
        self.headers.iter().for_each(|(name, text)| {
            part(name);
            part(text);
        });
        part(module);
        part(&self.modules[module]);
        hex(&hash.finalize())
    }
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_hash_sees_every_change() {
    let change = |f: fn(&mut Sources)| {
        let mut sources = Sources {
            modules: [("a".to_owned(), "x".to_owned()), ("b".to_owned(), "y".to_owned())].into(),
            headers: [("c.cuh".to_owned(), "z".to_owned())].into(),
        };
        f(&mut sources);
        sources.hash("a", Architecture(80))
    };
    let plain = change(|_| {});
    assert_eq!(plain, change(|_| {}));
    assert_eq!(plain, change(|s| s.modules.get_mut("b").unwrap().push('!')), "another module is no matter");
    assert_ne!(plain, change(|s| s.modules.get_mut("a").unwrap().push('!')));
    assert_ne!(plain, change(|s| s.headers.get_mut("c.cuh").unwrap().push('!')));
    assert_ne!(plain, change(|s| drop(s.headers.insert("d.cuh".into(), String::new()))));
    let sources = Sources { modules: [("a".to_owned(), "x".to_owned())].into(), headers: BTreeMap::new() };
    assert_ne!(sources.hash("a", Architecture(75)), sources.hash("a", Architecture(80)));
}
