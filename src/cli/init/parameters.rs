//! The parameters that a configuration sets of an architecture: only such as the architecture's own file has.

use super::writing::Writing;
use crate::config::load::models::parameters;

/// Names of parameters, and what they are set to.
pub type Values = &'static [(&'static str, &'static str)];

/// The names of an architecture's parameters.
pub struct Parameters(Vec<String>);

impl Parameters {
    /// Those of the architecture of that name.
    pub fn of(model: &str) -> Self {
        Parameters(parameters(model))
    }

    /// Whether it has one of that name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|own| own == name)
    }

    /// Whether it has attention: it wants smaller steps than nets without.
    pub fn has_attention(&self) -> bool {
        self.has("heads")
    }

    /// Of `values` those whose parameters it has, as keys of TOML.
    pub fn set(&self, values: &[(&str, &str)]) -> Vec<String> {
        values.iter().filter(|(name, _)| self.has(name)).map(|(name, value)| format!("{name} = {value}")).collect()
    }

    /// Writes `with` for these values; no line if the architecture has none of the parameters.
    pub fn write(&self, out: &mut Writing, values: &[(&str, &str)], remark: &str) {
        let set = self.set(values);
        if !set.is_empty() {
            out.key("with", &format!("{{ {} }}", set.join(", ")), remark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_architecture_does_not_have_is_left_out() {
        let values = [("width", "64"), ("depth", "2"), ("num_blocks", "2")];
        assert_eq!(Parameters::of("tabular").set(&values), ["width = 64", "depth = 2"]);
        assert_eq!(Parameters::of("ft_transformer").set(&values), ["width = 64", "num_blocks = 2"]);
        let mut out = Writing::default();
        Parameters::of("linear").write(&mut out, &values, "");
        assert_eq!(out.text(), "");
        assert!(Parameters::of("ft_transformer").has_attention() && !Parameters::of("lstm").has_attention());
    }
}
