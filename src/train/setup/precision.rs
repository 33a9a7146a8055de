//! The precision that an experiment asks for, and the one that its programs are built with.

use crate::backend::Backend;
use crate::config::language::values::Precision;
use crate::graph::DType;

/// The precision for programs on `backend`: the one that is `wanted` if the device has it, else `fp32`.
pub fn supported(wanted: Precision, backend: &dyn Backend) -> Precision {
    let has = match wanted {
        Precision::Fp32 => true,
        Precision::Tf32 => backend.supports_tf32(),
        Precision::Bf16 => backend.supports(DType::BF16) || backend.makes_bf16_products(),
        Precision::Fp16 => backend.supports(DType::F16),
    };
    if has { wanted } else { Precision::Fp32 }
}

/// The note on a device that lacks the precision `wanted` or is slow in it.
pub fn note(wanted: Precision, backend: &dyn Backend) -> Option<String> {
    let used = supported(wanted, backend);
    if let Some(slow) = backend.slow_precision().filter(|_| used == wanted) {
        return Some(format!("{}: {slow}", backend.describe()));
    }
    (used != wanted).then(|| format!("{} does not compute in `{wanted}`: the run is in `{used}`", backend.describe()))
}

/// The type of 16-bit values in programs on `backend`; `None` if there are none: also where only products are rounded.
pub fn half(precision: Precision, backend: &dyn Backend) -> Option<DType> {
    half_of(precision).filter(|half| backend.supports(*half))
}

/// The 16-bit type of a mixed precision.
pub fn half_of(precision: Precision) -> Option<DType> {
    match precision {
        Precision::Fp32 | Precision::Tf32 => None,
        Precision::Bf16 => Some(DType::BF16),
        Precision::Fp16 => Some(DType::F16),
    }
}
