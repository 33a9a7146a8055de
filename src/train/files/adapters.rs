//! Adapters of low rank among the tensors of a model: added to the weights that they change.

use crate::checkpoint::Tensor;
use crate::config::language::sections::Lora;
use crate::graph::DType;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// What to do with a file that has adapters alone.
pub const TO_MERGE: &str = "merge it into its model with PEFT, `PeftModel.from_pretrained(model, folder).merge_and_unload().save_pretrained(\"merged\")`, and \
     give the weights that this writes";

/// Whether tensors of these names are adapters alone, as PEFT writes them: what is added to the weights of a model, without those.
pub fn are_alone<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let (mut adapters, mut others) = (0, 0);
    for name in names {
        let is_adapter = ["lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector"]
            .iter()
            .any(|part| name.split('.').any(|word| word == *part));
        adapters += usize::from(is_adapter);
        // Layers that are trained beside adapters have the prefix of a model of PEFT's, too.
        others += usize::from(!is_adapter && !name.starts_with("base_model."));
    }
    adapters > 0 && others == 0
}

/// Takes all adapters out, and adds `scale · B A` to the weights of their layers. `transposed`: the weight of the layer of that name is
/// `[in, out]`.
///
/// # Errors
/// A layer lacks its weight or one of the matrices, or their shapes do not fit each other.
pub fn merge(tensors: &mut BTreeMap<String, Tensor>, scale: f64, transposed: impl Fn(&str) -> bool) -> Result<()> {
    let layers: Vec<String> = tensors.keys().filter_map(|name| Some(name.strip_suffix(Lora::A)?.to_owned())).collect();
    for layer in layers {
        let mut take = |end: &str| tensors.remove(&format!("{layer}{end}"));
        let (a, b) = (take(Lora::A), take(Lora::B));
        let name = format!("{layer}weight");
        let weight = tensors.get_mut(&name);
        let place = || format!("the adapter of `{name}` is not whole");
        let (a, b, weight) = (a.with_context(place)?, b.with_context(place)?, weight.with_context(place)?);
        let (&[rank, inp], &[out, columns]) = (&a.shape[..], &b.shape[..]) else {
            return Err(anyhow::anyhow!(place()));
        };
        let transposed = transposed(layer.trim_end_matches('.'));
        let meant = if transposed { [inp, out] } else { [out, inp] };
        ensure!(rank == columns && weight.shape == meant, "the matrices of the adapter of `{name}` do not fit");
        ensure!(
            [&a, &b, &*weight].iter().all(|tensor| tensor.dtype == DType::F32),
            "`{name}` is not in single precision"
        );
        let (a, b) = (numbers(&a), numbers(&b));
        let mut sums = vec![0.0f64; inp];
        for o in 0..out {
            sums.fill(0.0);
            for r in 0..rank {
                let factor = f64::from(b[o * rank + r]);
                sums.iter_mut().zip(&a[r * inp..][..inp]).for_each(|(sum, a)| *sum += factor * f64::from(*a));
            }
            for (i, sum) in sums.iter().enumerate() {
                let at = if transposed { i * out + o } else { o * inp + i };
                let element = &mut weight.data.as_chunks_mut::<4>().0[at];
                *element = ((f64::from(f32::from_ne_bytes(*element)) + scale * sum) as f32).to_ne_bytes();
            }
        }
    }
    Ok(())
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.data.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], numbers: &[f32]) -> Tensor {
        let data = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        Tensor { dtype: DType::F32, shape: shape.to_vec(), data }
    }

    fn model(shape: [usize; 2], a: &[f32], b: &[f32]) -> BTreeMap<String, Tensor> {
        [
            ("fc.weight", tensor(&shape, &[1.0; 6])),
            ("fc.lora_A.weight", tensor(&[1, 3], a)),
            ("fc.lora_B.weight", tensor(&[2, 1], b)),
            ("other.weight", tensor(&[1], &[7.0])),
        ]
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .into()
    }

    #[test]
    fn adapters_are_added_to_their_layers() {
        let (a, b) = ([1.0, 2.0, 3.0], [10.0, 20.0]);
        let mut plain = model([2, 3], &a, &b);
        merge(&mut plain, 0.5, |_| false).unwrap();
        assert_eq!(plain.keys().collect::<Vec<_>>(), ["fc.weight", "other.weight"]);
        assert_eq!(numbers(&plain["fc.weight"]), [6.0, 11.0, 16.0, 11.0, 21.0, 31.0]);
        let mut transposed = model([3, 2], &a, &b);
        merge(&mut transposed, 0.5, |layer| layer == "fc").unwrap();
        assert_eq!(numbers(&transposed["fc.weight"]), [6.0, 11.0, 11.0, 21.0, 16.0, 31.0]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut lacks = model([2, 3], &[0.0; 3], &[0.0; 2]);
        lacks.remove("fc.lora_B.weight");
        assert!(merge(&mut lacks, 1.0, |_| false).unwrap_err().to_string().contains("`fc.weight` is not whole"));
        let mut wrong = model([3, 2], &[0.0; 3], &[0.0; 2]);
        assert!(merge(&mut wrong, 1.0, |_| false).unwrap_err().to_string().contains("do not fit"));
    }
}
