//! Which matrix products cuBLASLt does, and how they are described to it.
//!
//! It stays with our own kernels where
//! * there is no cuBLASLt, or it has no algorithm for the product;
//! * a matrix's rows are not a multiple of 16 bytes: loads for tensor cores need that, and without it the library is not
//!   faster than our own kernels;
//! * the product is small: then the latency of launches dominates, and our kernels need one launch fewer where the bias must
//!   be converted.

use super::sums::{Finish, aligned};
use super::{Context, Extents, operand_type, with_bias_gradient};
use crate::backend::gpu::launch::{
    Epilogue, Kernel, Lowered, Matmul, MatmulStep, Memory, Module, Step, WORKSPACE_ALIGNMENT, suffix,
};
use crate::graph::DType;
use crate::graph::op::Activation;

/// Fewest multiply-adds that are worth a call of the library.
const SMALLEST: usize = 1 << 21;

/// Rows of matrices must be a multiple of this many bytes.
const ROW_BYTES: usize = 16;

/// Whether the library is asked, by the rule above.
fn is_worthwhile(matmul: &Matmul) -> bool {
    let Matmul { m, n, k, dtype, d_type, .. } = *matmul;
    let [a, b, d] = matmul.layouts();
    let aligned = [(a, dtype), (b, dtype), (d, d_type)].iter().all(|([row, _], t)| (row * t.bytes()) % ROW_BYTES == 0);
    aligned && m.saturating_mul(n).saturating_mul(k) >= SMALLEST
}

/// Operands of a product, and of its epilogue.
struct Operands {
    a: Memory,
    b: Memory,
    d: Memory,
    vector: Option<Memory>,
}

/// The product as a step, with its workspace from byte `scratch` on; `None` if our own kernels do it.
fn product(cx: &Context, matmul: Matmul, operands: Operands, scratch: usize) -> Option<Lowered> {
    if !(cx.target.libraries.everywhere() || is_worthwhile(&matmul)) {
        return None;
    }
    let bytes = cx.target.libraries.matmul(&matmul)?;
    // Workspace is aligned less than the library wants: there is room to round its start up.
    let scratch_bytes = if bytes > 0 { scratch + aligned(bytes) + WORKSPACE_ALIGNMENT } else { scratch };
    let Operands { a, b, d, vector } = operands;
    let step = MatmulStep { matmul, a, b, d, vector, workspace: Memory::Scratch(if bytes > 0 { scratch } else { 0 }) };
    Some(Lowered { steps: vec![Step::Matmul(step)], scratch_bytes })
}

/// Whether 32-bit operands may be rounded to TF32, on a device that knows it.
pub fn tf32(cx: &Context) -> bool {
    cx.target.tf32 && cx.target.capability >= 80
}

/// `y = act(x · wᵀ + b)`. The library's matrices are column-major: to it, this is `yᵀ = w · xᵀ` with w
/// transposed.
pub fn forward(cx: &Context, sizes: Extents, finish: &Finish) -> Option<Lowered> {
    let Extents { rows, inputs: k, outputs: m } = sizes;
    let relu = finish.act == Some(Activation::Relu);
    let epilogue = match (finish.bias.is_some(), relu) {
        (false, false) => Epilogue::Plain,
        (false, true) => Epilogue::Relu,
        (true, false) => Epilogue::Bias,
        (true, true) => Epilogue::ReluBias,
    };
    let (dtype, d_type) = (operand_type(cx), finish.y_type);
    let (a_transposed, b_transposed) = (true, false);
    let matmul = Matmul { m, n: rows, k, a_transposed, b_transposed, dtype, d_type, epilogue, tf32: tf32(cx) };
    // The library wants a bias of the result's type.
    let converted = finish.bias.filter(|_| d_type != DType::F32);
    let scratch = if converted.is_some() { aligned(m * d_type.bytes()) } else { 0 };
    let vector = if converted.is_some() { Some(Memory::Scratch(0)) } else { finish.bias };
    let operands = Operands { a: Memory::Input(1), b: Memory::Input(0), d: finish.y, vector };
    let mut lowered = product(cx, matmul, operands, scratch)?;
    if let Some(bias) = converted {
        let kernel = Kernel::new(Module::Elementwise, format!("cast_f32_{}", suffix(d_type))).over(m);
        lowered.steps.insert(0, kernel.arg(bias).arg(Memory::Scratch(0)).long(m).into());
    }
    if let Some(act) = finish.act.filter(|_| !relu) {
        lowered.steps.push(activation(finish, act, rows * m));
    }
    Some(lowered)
}

/// The activation in place, for one that the library has no epilogue for.
pub fn activation(finish: &Finish, act: Activation, n: usize) -> Step {
    let kernel = Kernel::new(Module::Elementwise, format!("activation_{}", suffix(finish.y_type)));
    kernel.over(n.div_ceil(4)).arg(finish.y).arg(finish.y).long(n).activation(Some(act)).into()
}

/// `dx = dy · w` for `rows` rows. To the library it is `dxᵀ = wᵀ · dyᵀ`, nothing transposed.
pub fn backward_input(cx: &Context, rows: usize) -> Option<Lowered> {
    let (k, m) = (cx.x(1).dims()[0], cx.x(1).last());
    let matmul = Matmul {
        m,
        n: rows,
        k,
        a_transposed: false,
        b_transposed: false,
        dtype: operand_type(cx),
        d_type: cx.y_type(0),
        epilogue: Epilogue::Plain,
        tf32: tf32(cx),
    };
    let operands = Operands { a: Memory::Input(1), b: Memory::Input(0), d: Memory::Output(0), vector: None };
    product(cx, matmul, operands, 0)
}

/// `dw = dyᵀ · x`, and `db = Σ dy` if `bias`. To the library it is `dwᵀ = xᵀ · dy` with dy transposed.
pub fn backward_weight(cx: &Context, sizes: Extents, bias: bool) -> Option<Lowered> {
    let Extents { rows: k, inputs: m, outputs: n } = sizes;
    let plain = Matmul {
        m,
        n,
        k,
        a_transposed: false,
        b_transposed: true,
        dtype: operand_type(cx),
        d_type: DType::F32,
        epilogue: Epilogue::Plain,
        tf32: tf32(cx),
    };
    let operands = |vector| Operands { a: Memory::Input(0), b: Memory::Input(1), d: Memory::Output(0), vector };
    if !bias {
        return product(cx, plain, operands(None), 0);
    }
    let both = Matmul { epilogue: Epilogue::SumsOfB, ..plain };
    product(cx, both, operands(Some(Memory::Output(1))), 0)
        .or_else(|| Some(with_bias_gradient(cx, product(cx, plain, operands(None), 0)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_odd_products_stay_with_our_own_kernels() {
        let forward = |m, n, k, dtype| Matmul {
            m,
            n,
            k,
            a_transposed: true,
            b_transposed: false,
            dtype,
            d_type: dtype,
            epilogue: Epilogue::Plain,
            tf32: false,
        };
        assert!(is_worthwhile(&forward(128, 256, 3136, DType::F32)));
        assert!(!is_worthwhile(&forward(128, 16, 128, DType::F32)), "small");
        assert!(!is_worthwhile(&forward(1001, 256, 4096, DType::F32)), "rows of D are odd");
        assert!(is_worthwhile(&forward(1004, 256, 4096, DType::F32)));
        assert!(!is_worthwhile(&forward(1004, 256, 4096, DType::BF16)), "rows of D are not 16 bytes");
        assert!(!is_worthwhile(&forward(1024, 256, 4100, DType::F16)), "rows of A are not 16 bytes");
    }
}
