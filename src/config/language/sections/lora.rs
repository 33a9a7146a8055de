//! `[model] lora`: adapters of low rank.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::config::declare::bounds::{MAX_SIZE, above};
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::schema::Table;
use crate::config::declare::value::Value;
use crate::config::language::pattern::Pattern;
use crate::config::text::tree::Node;

options! {
    /// Adapters of low rank (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"): `linear` layers put out `alpha / rank · B A x`
    /// more, and `A` and `B` are trained alone. `peft.LoraConfig`.
    pub struct Lora {
        /// Rows of `A`, and columns of `B`.
        #[option(range = 1..=MAX_SIZE, example = "8")]
        pub rank: usize,
        /// The factor of what adapters put out, times `rank`.
        #[option(otherwise = "`rank`", range = above(0.0), example = "16.0")]
        pub alpha: Option<f64>,
        /// The `linear` layers that get an adapter, by their names or the ends of those: `"q_proj"` names those in all blocks. `*` stands for any characters.
        #[option(length = 1.., example = r#"["q_proj", "v_proj"]"#)]
        pub targets: Vec<Pattern>,
        /// Probability with which an element of what an adapter takes is zero in training.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
        /// Layers or parameters that are trained as they are, too, such as the classifier of an encoder. Names are as in `freeze`.
        #[option(default = Vec::new(), example = r#"["classifier"]"#)]
        pub modules_to_save: Vec<Pattern>,
    }
}

impl Check for Lora {
    fn check(&self, part: &Part) {
        let fits = self.rank == 0 || (self.scale() as f32).is_finite();
        part.require("alpha", fits, "is more times `rank` than a number in single precision can be");
    }
}

impl Lora {
    /// The end of the name of an adapter's first matrix, `[rank, in]`.
    pub const A: &str = "lora_A.weight";
    /// That of its second one, `[out, rank]`.
    pub const B: &str = "lora_B.weight";

    /// Whether a parameter is a part of an adapter.
    pub fn has(name: &str) -> bool {
        let of = |end: &str| name.strip_suffix(end).is_some_and(|layer| layer.is_empty() || layer.ends_with('.'));
        of(Lora::A) || of(Lora::B)
    }

    /// Whether a pattern of `targets` names the layer of that path.
    pub fn names(target: &Pattern, path: &str) -> bool {
        let before = path.strip_suffix(target.text.as_str());
        let ends = before.is_some_and(|before| before.is_empty() || before.ends_with('.'));
        ends || target.text.contains('*') && target.matches(path)
    }

    /// The first pattern that names a layer.
    pub fn target(&self, path: &str) -> Option<&Pattern> {
        self.targets.iter().find(|target| Lora::names(target, path))
    }

    /// The factor of what adapters put out.
    pub fn scale(&self) -> f64 {
        self.alpha.map_or(1.0, |alpha| alpha / self.rank as f64)
    }
}

impl Value for Lora {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, &format!("`{key}`"))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl JsonSchema for Lora {
    fn schema_name() -> Cow<'static, str> {
        "Lora".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::text::diagnostics::{SourceId, Span};

    #[test]
    fn layers_are_named_by_the_ends_of_their_paths() {
        let span = Span { source: SourceId(0), start: 0, end: 0 };
        let targets = ["q_proj", "mlp.fc", "h.*.up"].map(|text| Pattern { text: text.into(), span });
        let lora =
            Lora { rank: 4, alpha: Some(8.0), targets: targets.to_vec(), dropout: 0.0, modules_to_save: Vec::new() };
        for path in ["q_proj", "layers.0.q_proj", "h.3.mlp.fc", "h.3.mlp.up"] {
            assert!(lora.target(path).is_some(), "{path}");
        }
        for path in ["my_q_proj", "q_proj.x", "fc", "g.up"] {
            assert!(lora.target(path).is_none(), "{path}");
        }
        assert_eq!(lora.scale(), 2.0);
        assert!(Lora::has("h.0.fc.lora_A.weight") && Lora::has("lora_B.weight"));
        assert!(!Lora::has("fc.weight") && !Lora::has("my_lora_A.weight"));
    }
}
