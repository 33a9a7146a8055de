//! Quantiles of the standard normal distribution.

/// The ends of probabilities, beyond which scikit-learn clips: `spacing(1)` off the bounds.
pub const BOUND: f64 = 1e-7 - f64::EPSILON;

/// Coefficients of two polynomials, that of the lowest power first: one is divided by the other.
pub type Ratio = [[f64; 8]; 2];

/// Coefficients of AS 241 for probabilities less than 0.425 off a half: numerator and denominator.
pub const CENTRE: Ratio = [
    [
        3.387_132_872_796_366_5,
        133.141_667_891_784_38,
        1_971.590_950_306_551_3,
        13_731.693_765_509_46,
        45_921.953_931_549_87,
        67_265.770_927_008_7,
        33_430.575_583_588_13,
        2_509.080_928_730_122_7,
    ],
    [
        1.0,
        42.313_330_701_600_91,
        687.187_007_492_057_9,
        5_394.196_021_424_751,
        21_213.794_301_586_597,
        39_307.895_800_092_71,
        28_729.085_735_721_943,
        5_226.495_278_852_545,
    ],
];
/// Those for probabilities down to e⁻²⁵, which [`BOUND`] is far above.
pub const TAIL: Ratio = [
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        0.241_780_725_177_450_6,
        0.022_723_844_989_269_184,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        0.689_767_334_985_1,
        0.148_103_976_427_480_08,
        0.015_198_666_563_616_457,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
];
/// Those beyond.
const FAR: Ratio = [
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        0.296_560_571_828_504_87,
        0.026_532_189_526_576_124,
        0.001_242_660_947_388_078_4,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        0.599_832_206_555_888,
        0.136_929_880_922_735_8,
        0.014_875_361_290_850_615,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_7e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
];

/// The inverse of the standard normal distribution function: algorithm AS 241 (Wichura 1988), to 16 digits.
pub fn normal_quantile(p: f64) -> f64 {
    let [above, below] =
        [0, 1].map(|part| move |ratio: Ratio, x: f64| ratio[part].iter().rev().fold(0.0, |sum, c| sum * x + c));
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * above(CENTRE, r) / below(CENTRE, r);
    }
    let r = (-(if q < 0.0 { p } else { 1.0 - p }).ln()).sqrt();
    let (ratio, r) = if r <= 5.0 { (TAIL, r - 1.6) } else { (FAR, r - 5.0) };
    (above(ratio, r) / below(ratio, r)).copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_quantile_is_that_of_tables() {
        // scipy.stats.norm.ppf
        for (p, expected) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.025, -1.959_963_984_540_054),
            (0.9, 1.281_551_565_544_600_4),
            (0.01, -2.326_347_874_040_840_8),
            (1e-7, -5.199_337_582_192_816_5),
            (1e-12, -7.034_483_825_301_132),
        ] {
            assert!(
                (normal_quantile(p) - expected).abs() < 1e-12 * (1.0 + expected.abs()),
                "{p}: {}",
                normal_quantile(p)
            );
        }
    }
}
