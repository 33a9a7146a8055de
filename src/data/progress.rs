//! Progress of downloading, unpacking and reading data, for progress bars.

/// Events while data is fetched and unpacked, for progress bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A file is there already, with the right checksum.
    Present {
        /// Its name.
        file: &'a str,
    },
    /// A transfer begins, `done` bytes being there from before.
    Started {
        /// The file's name.
        file: &'a str,
        /// Where from.
        url: &'a str,
        /// Bytes that are there.
        done: u64,
        /// Size of the file.
        total: u64,
    },
    /// More has come.
    Progress {
        /// The file's name.
        file: &'a str,
        /// Bytes that are there.
        done: u64,
        /// Size of the file.
        total: u64,
    },
    /// An attempt failed; the next one follows, if there is one.
    Failed {
        /// The file's name.
        file: &'a str,
        /// Where from.
        url: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// A file is whole and has its name.
    Finished {
        /// Its name.
        file: &'a str,
    },
    /// An archive is being unpacked, which is done once.
    Unpacking {
        /// Its name.
        file: &'a str,
        /// Bytes of it that are done.
        done: u64,
        /// Its size.
        total: u64,
    },
    /// The archive is unpacked.
    Unpacked {
        /// Its name.
        file: &'a str,
    },
    /// Something that is worth knowing.
    Note {
        /// The text.
        text: &'a str,
    },
}
