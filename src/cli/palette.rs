//! Colours of classes: those of PASCAL VOC, in which many masks are saved.

/// The colour of a class. The bits of its number go to red, green and blue in turn, each to the highest bit that is left: 0 is
/// black, 1 dark red, 2 dark green, 3 dark yellow. Everingham et al. 2010, "The PASCAL Visual Object Classes (VOC) Challenge", development kit.
pub fn colour(class: u8) -> [u8; 3] {
    let bit = |at: u32| (u32::from(class) >> at & 1) as u8;
    [0, 1, 2].map(|channel| (0..3).fold(0, |value, i| value | bit(3 * i + channel) << (7 - i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_voc() {
        assert_eq!(
            [0, 1, 2, 3, 8, 20].map(colour),
            [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [64, 0, 0], [0, 64, 128]]
        );
        let mut all: Vec<[u8; 3]> = (0..=255).map(colour).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 256);
    }
}
