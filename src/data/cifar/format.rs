//! What CIFAR-10 and CIFAR-100 have in common and what not: the names of their files, and how long a record is.

use super::super::known::{File, Known};

/// Height and width of an image.
pub const SIDE: usize = 32;
/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// The files of a set.
#[derive(Debug)]
pub struct Format {
    /// The public set.
    pub known: Known,
    /// The folder in the archive.
    pub folder: &'static str,
    /// The names that the archive may have.
    pub archives: [&'static str; 2],
    /// The files in the folder, the test set last.
    pub files: &'static [&'static str],
    /// How many classes each label of a record may be. A label is a byte; the pixels come after them.
    pub labels: &'static [usize],
}

/// CIFAR-10.
pub static TEN: Format = Format {
    known: Known::Cifar10,
    folder: "cifar-10-batches-bin",
    archives: ["cifar-10-binary.tar.gz", "cifar-10-binary.tar.xz"],
    files: &[
        "data_batch_1.bin",
        "data_batch_2.bin",
        "data_batch_3.bin",
        "data_batch_4.bin",
        "data_batch_5.bin",
        "test_batch.bin",
    ],
    labels: &[10],
};

/// CIFAR-100.
pub static HUNDRED: Format = Format {
    known: Known::Cifar100,
    folder: "cifar-100-binary",
    archives: ["cifar-100-binary.tar.gz", "cifar-100-binary.tar.xz"],
    files: &["train.bin", "test.bin"],
    labels: &[20, 100],
};

impl Format {
    /// Bytes of a record.
    pub fn record(&self) -> usize {
        self.labels.len() + 3 * PIXELS
    }

    /// The files of the public set, in the order of [`Format::files`].
    pub fn content(&self) -> &'static [File] {
        self.known.content()
    }

    /// Bytes of the largest file.
    pub fn largest(&self) -> usize {
        self.content().iter().map(|file| file.bytes as usize).max().unwrap_or_default()
    }
}

/// The classes of CIFAR-10.
pub const CLASSES_10: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// The superclasses of CIFAR-100.
pub const CLASSES_20: [&str; 20] = [
    "aquatic_mammals",
    "fish",
    "flowers",
    "food_containers",
    "fruit_and_vegetables",
    "household_electrical_devices",
    "household_furniture",
    "insects",
    "large_carnivores",
    "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes",
    "large_omnivores_and_herbivores",
    "medium_mammals",
    "non-insect_invertebrates",
    "people",
    "reptiles",
    "small_mammals",
    "trees",
    "vehicles_1",
    "vehicles_2",
];

/// The classes of CIFAR-100.
#[rustfmt::skip]
pub const CLASSES_100: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
];
