//! PNG files that commands write: masks and sheets of samples. They are marked, so that none takes the place of a photo or a label of the user.

use crate::api::failure::Failure;
use anyhow::{Context, Result};
use png::{ColorType, Decoder, DecodingError, Encoder};
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind};
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
/// It is such a file, or cannot be read.
pub fn expect_own(path: &Path, option: &str) -> Result<(), Failure> {
    let filled = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
    let cannot = || format!("cannot see whether `{}` is an image that may be replaced", path.display());
    match filled && !is_marked(path).with_context(cannot)? {
        true => Err(Failure::Usage(format!(
            "`{}` is there, and is no image that `runner` has written\nhelp: remove that file, or let `{option}` name another place",
            path.display()
        ))),
        false => Ok(()),
    }
}

fn is_marked(path: &Path) -> io::Result<bool> {
    match Decoder::new(BufReader::new(File::open(path)?)).read_info() {
        Ok(reader) => {
            let texts = &reader.info().uncompressed_latin1_text;
            Ok(texts.iter().any(|text| text.keyword == KEYWORD && text.text == PROGRAM))
        }
        Err(DecodingError::IoError(error)) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
        Err(_) => Ok(false),
    }
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
