//! PNG files that commands write: masks and sheets of samples. They are marked, so that none takes the place of a photo or a label of the user.

use crate::api::failure::Failure;
use anyhow::Result;
use png::{ColorType, Decoder, Encoder};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

/// The chunk of text that has the name of the program, by the PNG specification.
const KEYWORD: &str = "Software";
const PROGRAM: &str = "runner";

/// A marked PNG file of bytes, row by row. The pixels are indices if there is a `palette`.
///
/// # Errors
/// There are not as many bytes as pixels have.
pub fn encode([height, width]: [u32; 2], color: ColorType, palette: Option<Vec<u8>>, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.add_text_chunk(KEYWORD.into(), PROGRAM.into())?;
    if let Some(palette) = palette {
        encoder.set_palette(palette);
    }
    encoder.write_header()?.write_image_data(bytes)?;
    Ok(file)
}

/// Refuses a file that is there, has something in it, and is no marked image. `option` names the output on the command line.
///
/// # Errors
/// It is such a file.
pub fn expect_own(path: &Path, option: &str) -> Result<(), Failure> {
    let filled = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
    match filled && !is_marked(path) {
        true => Err(Failure::Usage(format!(
            "`{}` is there, and is no image that `runner` has written\nhelp: remove that file, or let `{option}` name another place",
            path.display()
        ))),
        false => Ok(()),
    }
}

fn is_marked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let Ok(reader) = Decoder::new(BufReader::new(file)).read_info() else { return false };
    reader.info().uncompressed_latin1_text.iter().any(|text| text.keyword == KEYWORD && text.text == PROGRAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_this_program_are_known() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.png");
        let refused = || expect_own(&path, "--out").is_err();
        assert!(!refused(), "nothing is there");
        fs::write(&path, "").unwrap();
        assert!(!refused(), "nothing is in it");
        fs::write(&path, encode([1, 2], ColorType::Grayscale, None, &[3, 4]).unwrap()).unwrap();
        assert!(!refused());
        image::GrayImage::new(2, 1).save(&path).unwrap();
        assert!(refused());
        fs::write(&path, "a text").unwrap();
        assert!(refused());
    }
}
