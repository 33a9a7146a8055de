//! The transforms of `[data]`: what happens to an image between its store and the model.

mod augment;
mod images;
mod values;

pub use augment::*;
pub use images::*;
pub use values::{DrawnFrom, Interpolation, Policy, ResizedTo, Shear};

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::config::declare::part::{Part, known_word};
use crate::config::declare::tagged::{Tagged, tagged};
use crate::config::declare::value::Value;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::{Node, Table};

tagged! {
    /// A step between a stored sample and the model's input.
    Transform by "type", resume Differs:
    "normalize" => Normalize(Normalize),
    "resize" => Resize(Resize),
    "center_crop" => CenterCrop(CenterCrop),
    "grayscale" => Grayscale(Grayscale),
    "random_crop" => RandomCrop(RandomCrop),
    "random_resized_crop" => RandomResizedCrop(RandomResizedCrop),
    "random_horizontal_flip" => RandomHorizontalFlip(RandomHorizontalFlip),
    "random_vertical_flip" => RandomVerticalFlip(RandomVerticalFlip),
    "random_rotation" => RandomRotation(RandomRotation),
    "color_jitter" => ColorJitter(ColorJitter),
    "random_grayscale" => RandomGrayscale(RandomGrayscale),
    "gaussian_blur" => GaussianBlur(GaussianBlur),
    "random_erasing" => RandomErasing(RandomErasing),
    "random_affine" => RandomAffine(RandomAffine),
    "random_invert" => RandomInvert(RandomInvert),
    "random_posterize" => RandomPosterize(RandomPosterize),
    "random_solarize" => RandomSolarize(RandomSolarize),
    "random_adjust_sharpness" => RandomAdjustSharpness(RandomAdjustSharpness),
    "random_autocontrast" => RandomAutocontrast(RandomAutocontrast),
    "random_equalize" => RandomEqualize(RandomEqualize),
    "rand_augment" => RandAugment(RandAugment),
    "trivial_augment_wide" => TrivialAugmentWide(TrivialAugmentWide),
    "auto_augment" => AutoAugment(AutoAugment),
    "mixup" => Mixup(Mixup),
    "cutmix" => Cutmix(Cutmix),
}

/// Transforms that change a sample at random.
pub const RANDOM_TRANSFORMS: [&str; 21] = [
    "random_crop",
    "random_resized_crop",
    "random_horizontal_flip",
    "random_vertical_flip",
    "random_rotation",
    "color_jitter",
    "random_grayscale",
    "gaussian_blur",
    "random_erasing",
    "random_affine",
    "random_invert",
    "random_posterize",
    "random_solarize",
    "random_adjust_sharpness",
    "random_autocontrast",
    "random_equalize",
    "rand_augment",
    "trivial_augment_wide",
    "auto_augment",
    "mixup",
    "cutmix",
];

impl Value for Transform {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let what = format!("`{key}`");
        let nothing = Table::default();
        let (table, word) =
            match (node.as_table(), node.as_str()) {
                (Some(table), _) => {
                    let part = Part { table, span: node.span, what: &what, bad: &[], sink: part.sink };
                    (table, part.word::<Self>(None)?)
                }
                (None, Some(_)) => (&nothing, known_word(node, Self::TAG, &what, Self::TYPES, part.sink)?),
                (None, None) => {
                    part.sink.push(Diagnostic::error(format!("wrong value in {what}")).at(
                        node.span,
                        format!("expected a table or the name of a transform, found {}", node.describe()),
                    ));
                    return None;
                }
            };
        let what = format!("transform `{word}`");
        let part = Part { table, span: node.span, what: &what, bad: &[], sink: part.sink };
        part.known_keys(&[&[Self::TAG], Self::fields(word)]);
        <Self as Tagged>::read(word, &part)
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "$ref": "#/$defs/Transform" })
    }
}

/// What is random would change evaluation too.
pub(super) fn for_all(generator: &mut SchemaGenerator) -> Schema {
    list_of_transforms(generator, |word| !RANDOM_TRANSFORMS.contains(&word))
}

/// Training and evaluation are normalised alike.
pub(super) fn for_training(generator: &mut SchemaGenerator) -> Schema {
    list_of_transforms(generator, |word| word != "normalize")
}

/// What is random would make evaluation random.
pub(super) fn for_evaluation(generator: &mut SchemaGenerator) -> Schema {
    list_of_transforms(generator, |word| word != "normalize" && !RANDOM_TRANSFORMS.contains(&word))
}

fn list_of_transforms(generator: &mut SchemaGenerator, fits: fn(&str) -> bool) -> Schema {
    let words: Vec<&str> = Transform::TYPES.iter().copied().filter(|word| fits(word)).collect();
    let fits = serde_json::json!({ "anyOf": [{ "type": "string", "enum": words }, { "type": "object", "properties": { "type": { "enum": words } } }] });
    json_schema!({ "type": "array", "items": { "allOf": [Transform::schema(generator), fits] } })
}
