//! Trains on the bundled digits, and asks the model what a drawing shows.

use runner::api::predictor::{Options, Predictor};
use runner::api::train::{Request, start};
use std::path::PathBuf;

/// Two epochs into `folder`; the probabilities of the ten digits.
pub fn train_and_predict(folder: PathBuf) -> anyhow::Result<Vec<f32>> {
    let mut request = Request::of_config("configs/digits_cnn.toml");
    request.sets = vec!["train.epochs=2".into()];
    request.out = Some(folder);
    let trained = start(&request)?;

    let model = Predictor::open(&trained.folder, &Options::default())?;
    // An image of 8 × 8 bytes: a bar in the middle.
    let one: Vec<u8> = (0..64).map(|i| if (3..5).contains(&(i % 8)) { 255 } else { 0 }).collect();
    let mut probabilities = vec![0.0; model.outputs()];
    model.predict(&[&one], &mut probabilities)?;
    Ok(probabilities)
}

fn main() -> anyhow::Result<()> {
    println!("{:?}", train_and_predict("runs/example".into())?);
    Ok(())
}
