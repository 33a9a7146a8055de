//! A matrix product of cuBLASLt, as data.

use super::kernel::Memory;
use crate::graph::DType;

/// What happens to the accumulators of a product before they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Nothing.
    Plain,
    /// ReLU.
    Relu,
    /// A vector of D's type with an element for every row of D is added.
    Bias,
    /// The same, then ReLU.
    ReluBias,
    /// Nothing; but the sums of B along K are stored too, a vector of D's type with an element for every column of D.
    SumsOfB,
}

impl Epilogue {
    /// It reads or writes a vector.
    pub fn has_vector(self) -> bool {
        !matches!(self, Epilogue::Plain | Epilogue::Relu)
    }
}

/// `D = op(A) · op(B)` as cuBLASLt sees it: dense column-major matrices. A row-major matrix of ours is its own transpose to
/// the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// Rows of op(A) and of D.
    pub m: usize,
    /// Columns of op(B) and of D.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// A lies in memory as `k × m`, not `m × k`.
    pub a_transposed: bool,
    /// B lies in memory as `n × k`, not `k × n`.
    pub b_transposed: bool,
    /// Element type of A and B.
    pub dtype: DType,
    /// Element type of D and of the epilogue's vector.
    pub d_type: DType,
    /// What happens to the accumulators, which are of 32 bits.
    pub epilogue: Epilogue,
    /// 32-bit operands may be rounded to TF32.
    pub tf32: bool,
}

impl Matmul {
    /// Rows and columns of A, B and D in memory. A matrix's rows are its leading dimension.
    pub fn layouts(&self) -> [[usize; 2]; 3] {
        let Matmul { m, n, k, .. } = *self;
        let a = if self.a_transposed { [k, m] } else { [m, k] };
        let b = if self.b_transposed { [n, k] } else { [k, n] };
        [a, b, [m, n]]
    }
}

/// A matrix product that cuBLASLt does.
#[derive(Debug, Clone, PartialEq)]
pub struct MatmulStep {
    /// Sizes and types.
    pub matmul: Matmul,
    /// Operand A.
    pub a: Memory,
    /// Operand B.
    pub b: Memory,
    /// The result.
    pub d: Memory,
    /// What the epilogue reads or writes.
    pub vector: Option<Memory>,
    /// The workspace; the executable moves its start up to where the library wants it.
    pub workspace: Memory,
}
