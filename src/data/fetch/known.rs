//! The sets that can be downloaded: their files, checksums and mirrors.

use super::super::{Source, cifar};
use anyhow::Result;
use std::path::Path;

/// A set that can be downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// MNIST.
    Mnist,
    /// Fashion-MNIST.
    FashionMnist,
    /// CIFAR-10, binary version.
    Cifar10,
}

/// A file as it lies on a mirror.
#[derive(Debug)]
pub(super) struct RemoteFile {
    pub name: &'static str,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: &'static str,
}

const fn file(name: &'static str, bytes: u64, sha256: &'static str) -> RemoteFile {
    RemoteFile { name, bytes, sha256 }
}

const MNIST: [RemoteFile; 4] = [
    file("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    file("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    file("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    file("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
];

const FASHION_MNIST: [RemoteFile; 4] = [
    file("train-images-idx3-ubyte.gz", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    file("train-labels-idx1-ubyte.gz", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    file("t10k-images-idx3-ubyte.gz", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    file("t10k-labels-idx1-ubyte.gz", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
];

const CIFAR10: [RemoteFile; 1] =
    [file("cifar-10-binary.tar.gz", 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd")];

impl Known {
    /// All of them.
    pub const ALL: [Known; 3] = [Known::Mnist, Known::FashionMnist, Known::Cifar10];

    /// The name in a configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Known::Mnist => "mnist",
            Known::FashionMnist => "fashion_mnist",
            Known::Cifar10 => "cifar10",
        }
    }

    /// The set of that name.
    pub fn by_name(name: &str) -> Option<Known> {
        Known::ALL.into_iter().find(|k| k.name() == name)
    }

    /// The set that `source` reads and the folder that it reads it from, if it can be downloaded.
    pub fn of(source: &Source) -> Option<(Known, &Path)> {
        match source {
            Source::Mnist(root) => Some((Known::Mnist, root)),
            Source::FashionMnist(root) => Some((Known::FashionMnist, root)),
            Source::Cifar10(root) => Some((Known::Cifar10, root)),
            Source::Digits | Source::Tensors(_) | Source::Synthetic(_) => None,
        }
    }

    /// The mirrors that are built in: base addresses.
    pub fn mirrors(self) -> &'static [&'static str] {
        match self {
            Known::Mnist => &[
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "https://storage.googleapis.com/cvdf-datasets/mnist",
                "https://raw.githubusercontent.com/fgnt/mnist/master",
            ],
            Known::FashionMnist => &[
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            ],
            Known::Cifar10 => &[
                "https://www.cs.toronto.edu/~kriz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10",
            ],
        }
    }

    pub(super) fn files(self) -> &'static [RemoteFile] {
        match self {
            Known::Mnist => &MNIST,
            Known::FashionMnist => &FASHION_MNIST,
            Known::Cifar10 => &CIFAR10,
        }
    }

    /// What is left to do when all files are there: an archive is unpacked once, not in every run.
    pub(super) fn finish(self, root: &Path) -> Result<()> {
        match self {
            Known::Mnist | Known::FashionMnist => Ok(()),
            Known::Cifar10 => cifar::unpack(root),
        }
    }
}
