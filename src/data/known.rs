//! The public sets: their files as they lie on mirrors and as they are unpacked, their checksums, and the mirrors.

use super::digest::Digest;
use std::path::Path;

/// A public set, which can be downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// MNIST.
    Mnist,
    /// Fashion-MNIST.
    FashionMnist,
    /// CIFAR-10, binary version.
    Cifar10,
    /// CIFAR-100, binary version.
    Cifar100,
}

/// A file of a set, packed as it lies on a mirror or unpacked.
#[derive(Debug)]
pub(super) struct File {
    pub name: &'static str,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: &'static str,
}

const fn file(name: &'static str, bytes: u64, sha256: &'static str) -> File {
    File { name, bytes, sha256 }
}

const MNIST: [File; 4] = [
    file("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    file("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    file("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    file("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
];

const FASHION_MNIST: [File; 4] = [
    file("train-images-idx3-ubyte.gz", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    file("train-labels-idx1-ubyte.gz", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    file("t10k-images-idx3-ubyte.gz", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    file("t10k-labels-idx1-ubyte.gz", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
];

const CIFAR10: [File; 1] =
    [file("cifar-10-binary.tar.gz", 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd")];

const CIFAR100: [File; 1] =
    [file("cifar-100-binary.tar.gz", 168_513_733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec")];

const MNIST_CONTENT: [File; 4] = [
    file("train-images-idx3-ubyte", 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    file("train-labels-idx1-ubyte", 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    file("t10k-images-idx3-ubyte", 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    file("t10k-labels-idx1-ubyte", 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
];

const FASHION_MNIST_CONTENT: [File; 4] = [
    file("train-images-idx3-ubyte", 47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    file("train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    file("t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    file("t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
];

const CIFAR10_CONTENT: [File; 6] = [
    file("data_batch_1.bin", 30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    file("data_batch_2.bin", 30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    file("data_batch_3.bin", 30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    file("data_batch_4.bin", 30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    file("data_batch_5.bin", 30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    file("test_batch.bin", 30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
];

const CIFAR100_CONTENT: [File; 2] = [
    file("train.bin", 153_700_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
    file("test.bin", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
];

impl Known {
    /// All of them.
    pub const ALL: [Known; 4] = [Known::Mnist, Known::FashionMnist, Known::Cifar10, Known::Cifar100];

    /// The name in a configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Known::Mnist => "mnist",
            Known::FashionMnist => "fashion_mnist",
            Known::Cifar10 => "cifar10",
            Known::Cifar100 => "cifar100",
        }
    }

    /// The set of that name.
    pub fn by_name(name: &str) -> Option<Known> {
        Known::ALL.into_iter().find(|k| k.name() == name)
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
            Known::Cifar100 => &[
                "https://www.cs.toronto.edu/~kriz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR100",
            ],
        }
    }

    /// The name that people know it by.
    pub fn title(self) -> &'static str {
        match self {
            Known::Mnist => "MNIST",
            Known::FashionMnist => "Fashion-MNIST",
            Known::Cifar10 => "CIFAR-10",
            Known::Cifar100 => "CIFAR-100",
        }
    }

    /// The command that brings the set's files into `root`.
    pub(super) fn fetch_command(self, root: &Path) -> String {
        let root = root.display().to_string();
        let quote = if root.contains(char::is_whitespace) { "'" } else { "" };
        format!("runner data fetch {} --root {quote}{root}{quote}", self.name())
    }

    /// The files that are downloaded.
    pub(super) fn files(self) -> &'static [File] {
        match self {
            Known::Mnist => &MNIST,
            Known::FashionMnist => &FASHION_MNIST,
            Known::Cifar10 => &CIFAR10,
            Known::Cifar100 => &CIFAR100,
        }
    }

    /// The files that are read, unpacked.
    pub(super) fn content(self) -> &'static [File] {
        match self {
            Known::Mnist => &MNIST_CONTENT,
            Known::FashionMnist => &FASHION_MNIST_CONTENT,
            Known::Cifar10 => &CIFAR10_CONTENT,
            Known::Cifar100 => &CIFAR100_CONTENT,
        }
    }

    /// The parts of the samples' [`super::Fingerprint`]; `None`: it is to be computed.
    pub(super) fn fingerprint(self) -> Option<[&'static str; 4]> {
        Some(match self {
            Known::Mnist => [
                "b8c07b5d023247a313cacf88d598c789",
                "3ed8848edbb2d078524f661bf6d3b495",
                "d0389bbf6a4fb3734bc836d7a5d22fec",
                "57cdc61b3f84bdf1ef7f1a9bcef87c3c",
            ],
            Known::FashionMnist => [
                "af20fdd3b20f5cc6c213cf000d041901",
                "384a46a33f5c8e74cd4d376e837f9158",
                "c5664805aa7f85f15c6eb4bb6473c7d0",
                "8508fb7745c81114ac0017865c4b968d",
            ],
            Known::Cifar10 => [
                "783d51ae46a673757f856237a09a2bd8",
                "9a8a52caad8fe6772fd95d48622337d2",
                "fb0cf6572333b22d8d022f3ff5d2693f",
                "69767d6389af043f0208965217b9177d",
            ],
            // There are two ways to read it, with other labels.
            Known::Cifar100 => return None,
        })
    }

    /// The set and the file, packed or not, that has this digest.
    pub(super) fn identify(digest: &Digest) -> Option<(Known, &'static str)> {
        Known::ALL.into_iter().find_map(|set| {
            let file = set.content().iter().chain(set.files()).find(|file| digest.is(file.sha256))?;
            Some((set, file.name))
        })
    }
}
