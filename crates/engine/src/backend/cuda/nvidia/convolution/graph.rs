//! A convolution as cuDNN describes it: a graph of operations on tensors, each a descriptor.
//!
//! It is one operation or, fused, up to three: forward the convolution, the sum with the bias and the activation, with
//! tensors between them that are never stored. A gradient of another type than its operands may be fused with a copy of its
//! sums: engines that put something after a convolution store any type, others but that of the operands. Or it is asked for
//! in that type, and converted by our own kernels.

use super::super::status::LibraryError;
use super::descriptor::{Api, Descriptor};
use crate::backend::gpu::launch::{Convolution, Direction};
use crate::backend::gpu::target::Form;
use crate::graph::DType;
use crate::graph::op::Activation;
use cudarc::cudnn::sys as dnn;
use dnn::cudnnBackendAttributeName_t as Name;
use dnn::cudnnBackendAttributeType_t as Type;
use dnn::cudnnBackendDescriptorType_t as Kind;
use dnn::cudnnPointwiseMode_t as Mode;
use std::sync::Arc;

/// Every tensor begins at a multiple of so many bytes.
const ALIGNMENT: i64 = 16;

/// Unique ids of the tensors in a plan. The last two are virtual: they are never stored.
const X: i64 = 1;
const W: i64 = 2;
const Y: i64 = 3;
const BIAS: i64 = 4;
const SUMS: i64 = 5;
const BIASED: i64 = 6;

/// Where a convolution's tensors are.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// x, or its gradient.
    pub x: u64,
    /// w, or its gradient.
    pub w: u64,
    /// y, or its gradient.
    pub y: u64,
    /// The bias, if there is one.
    pub bias: Option<u64>,
    /// The workspace, at a multiple of [`crate::backend::gpu::launch::WORKSPACE_ALIGNMENT`].
    pub workspace: u64,
}

/// A finalized graph of operations with all that it is made of.
#[derive(Debug)]
pub struct OperationGraph {
    /// The graph. It is declared first: what it refers to must outlive it.
    pub graph: Descriptor,
    _parts: Vec<Descriptor>,
    has_bias: bool,
}

fn data_type(dtype: DType) -> u32 {
    let number = match dtype {
        DType::F32 => dnn::cudnnDataType_t::CUDNN_DATA_FLOAT,
        DType::BF16 => dnn::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        DType::F16 => dnn::cudnnDataType_t::CUDNN_DATA_HALF,
        other => panic!("no convolution is of {other}"),
    };
    number as u32
}

/// The library's pointwise mode for an activation, with its parameters; `None` if it has none.
fn pointwise(act: Activation) -> Option<(Mode, Vec<(Name, f64)>)> {
    let clipped = |slope: f32, upper: f32| {
        let parameters = vec![
            (Name::CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0.0),
            (Name::CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, f64::from(upper)),
            (Name::CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, f64::from(slope)),
        ];
        (Mode::CUDNN_POINTWISE_RELU_FWD, parameters)
    };
    Some(match act {
        Activation::Relu => clipped(0.0, f32::MAX),
        Activation::Relu6 => clipped(0.0, 6.0),
        Activation::LeakyRelu { slope } => clipped(slope, f32::MAX),
        Activation::Elu { alpha } => {
            (Mode::CUDNN_POINTWISE_ELU_FWD, vec![(Name::CUDNN_ATTR_POINTWISE_ELU_ALPHA, f64::from(alpha))])
        }
        Activation::Gelu => (Mode::CUDNN_POINTWISE_GELU_FWD, Vec::new()),
        Activation::GeluTanh => (Mode::CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, Vec::new()),
        Activation::Silu => (Mode::CUDNN_POINTWISE_SWISH_FWD, vec![(Name::CUDNN_ATTR_POINTWISE_SWISH_BETA, 1.0)]),
        Activation::Tanh => (Mode::CUDNN_POINTWISE_TANH_FWD, Vec::new()),
        Activation::Sigmoid => (Mode::CUDNN_POINTWISE_SIGMOID_FWD, Vec::new()),
        // Another kernel applies it.
        _ => return None,
    })
}

/// The forms in which the convolution may be asked for: groups of them, the better first, of which a later one is of use if the
/// earlier ones have no plan. Where plans are measured, those of a group have their turn in it.
///
/// Most engines know a gradient in its operands' type alone, which is what PyTorch's autocast has: where measuring decides, that
/// of BF16 is one more form. FP16 is none, as a sum over many pixels may exceed its range. A copy after a gradient comes last,
/// as the engines that have it compile it.
pub fn forms(c: &Convolution, measured: bool) -> &'static [&'static [Form]] {
    use Form::{Fused, Narrow, Plain};
    match c.direction {
        Direction::Forward if c.act.is_some_and(|act| pointwise(act).is_none()) => &[&[Plain]],
        Direction::Forward if (c.bias || c.act.is_some()) && measured => &[&[Fused, Plain]],
        Direction::Forward if c.bias || c.act.is_some() => &[&[Fused], &[Plain]],
        Direction::Weight if measured && c.result == DType::F32 && c.dtype == DType::BF16 => {
            &[&[Plain, Narrow], &[Fused]]
        }
        Direction::Input | Direction::Weight if c.result != c.dtype => &[&[Plain], &[Fused]],
        _ => &[&[Plain]],
    }
}

/// Makes descriptors and keeps them.
struct Maker<'a> {
    api: &'a Arc<Api>,
    made: Vec<Descriptor>,
}

/// A descriptor that a [`Maker`] keeps.
#[derive(Clone, Copy)]
struct Part(usize);

impl Maker<'_> {
    fn make(
        &mut self,
        kind: Kind,
        set: impl FnOnce(&Self, &Descriptor) -> Result<(), LibraryError>,
    ) -> Result<Part, LibraryError> {
        let descriptor = self.api.descriptor(kind)?;
        set(self, &descriptor)?;
        descriptor.finalize()?;
        self.made.push(descriptor);
        Ok(Part(self.made.len() - 1))
    }

    fn part(&self, part: Part) -> &Descriptor {
        &self.made[part.0]
    }

    /// A tensor of `dims` (images, channels, rows, columns) whose channels lie next to each other.
    fn tensor(&mut self, number: i64, dtype: DType, dims: [usize; 4], stored: bool) -> Result<Part, LibraryError> {
        let [_, c, h, w] = dims;
        self.make(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR, |_, tensor| {
            tensor.number(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, data_type(dtype))?;
            tensor.sizes(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &dims)?;
            tensor.sizes(Name::CUDNN_ATTR_TENSOR_STRIDES, &[h * w * c, 1, w * c, c])?;
            tensor.ints(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[number])?;
            tensor.ints(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT])?;
            tensor.boolean(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, !stored)
        })
    }

    /// `result = function(x)` or `function(x, b)`, computed in 32 bits.
    fn pointwise(
        &mut self,
        (mode, parameters): (Mode, &[(Name, f64)]),
        [x, result]: [Part; 2],
        b: Option<Part>,
    ) -> Result<Part, LibraryError> {
        let float = data_type(DType::F32);
        let function = self.make(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR, |_, function| {
            function.number(Name::CUDNN_ATTR_POINTWISE_MODE, Type::CUDNN_TYPE_POINTWISE_MODE, mode as u32)?;
            function.number(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Type::CUDNN_TYPE_DATA_TYPE, float)?;
            if mode == Mode::CUDNN_POINTWISE_RELU_FWD {
                // As our own kernels do: a loss that is not finite must be seen.
                let through = dnn::cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN as u32;
                let kind = Type::CUDNN_TYPE_NAN_PROPOGATION;
                function.number(Name::CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, kind, through)?;
            }
            parameters.iter().try_for_each(|(name, value)| function.double(*name, *value))
        })?;
        self.make(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, |made, operation| {
            let one = |name, part| operation.descriptors(name, &[made.part(part)]);
            one(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)?;
            one(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)?;
            one(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result)?;
            if let Some(b) = b {
                one(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)?;
            }
            operation.float(Name::CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0)?;
            operation.float(Name::CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0)
        })
    }

    /// The convolution alone, from and to these tensors.
    fn convolution(&mut self, c: &Convolution, [x, w, y]: [Part; 3]) -> Result<Part, LibraryError> {
        let [top, bottom, left, right] = c.padding;
        let sums = data_type(DType::F32);
        let description = self.make(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, |_, description| {
            let cross = dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION as u32;
            description.number(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, sums)?;
            description.number(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, cross)?;
            description.ints(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?;
            description.sizes(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &[top, left])?;
            description.sizes(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &[bottom, right])?;
            description.sizes(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &c.dilation)?;
            description.sizes(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &c.stride)
        })?;
        let (kind, names) = match c.direction {
            Direction::Forward => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                ],
            ),
            Direction::Input => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                ],
            ),
            Direction::Weight => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                ],
            ),
        };
        let [description_is, x_is, w_is, y_is, alpha, beta] = names;
        self.make(kind, |made, operation| {
            for (name, part) in [(description_is, description), (x_is, x), (w_is, w), (y_is, y)] {
                operation.descriptors(name, &[made.part(part)])?;
            }
            operation.float(alpha, 1.0)?;
            operation.float(beta, 0.0)
        })
    }
}

impl OperationGraph {
    /// The graph of `c` in a form.
    ///
    /// # Errors
    /// The library does not take it.
    pub fn new(api: &Arc<Api>, c: &Convolution, form: Form) -> Result<OperationGraph, LibraryError> {
        let fused = form == Form::Fused;
        let mut made = Maker { api, made: Vec::new() };
        let ([h, w], [oh, ow], [kh, kw]) = (c.input, c.output, c.kernel);
        let has_bias = fused && c.bias;
        let act = match c.direction {
            Direction::Forward => c.act.filter(|_| fused).and_then(pointwise),
            _ => fused.then_some((Mode::CUDNN_POINTWISE_IDENTITY, Vec::new())),
        };
        // x, w and y; which of them is the result, and by what numbers they are known.
        let dims =
            [[c.images, c.inputs, h, w], [c.outputs, c.inputs / c.groups, kh, kw], [c.images, c.outputs, oh, ow]];
        let at = match c.direction {
            Direction::Input => 0,
            Direction::Weight => 1,
            Direction::Forward => 2,
        };
        let mut tensors = Vec::with_capacity(3);
        for (i, number) in [X, W, Y].into_iter().enumerate() {
            let dtype = if i == at && form != Form::Narrow { c.result } else { c.dtype };
            tensors.push(made.tensor(number, dtype, dims[i], true)?);
        }
        let result = tensors[at];
        let mut operations = Vec::new();
        // What the convolution gives, and the bias added to it, go on in 32 bits.
        let behind = |made: &mut Maker, number, last: bool| {
            if last { Ok(result) } else { made.tensor(number, DType::F32, dims[at], false) }
        };
        tensors[at] = behind(&mut made, SUMS, !has_bias && act.is_none())?;
        operations.push(made.convolution(c, [tensors[0], tensors[1], tensors[2]])?);
        let mut sums = tensors[at];
        if has_bias {
            let bias = made.tensor(BIAS, DType::F32, [1, c.outputs, 1, 1], true)?;
            let biased = behind(&mut made, BIASED, act.is_none())?;
            operations.push(made.pointwise((Mode::CUDNN_POINTWISE_ADD, &[]), [sums, biased], Some(bias))?);
            sums = biased;
        }
        if let Some((mode, parameters)) = act {
            operations.push(made.pointwise((mode, &parameters), [sums, result], None)?);
        }
        let graph = api.descriptor(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        let parts: Vec<&Descriptor> = operations.into_iter().map(|part| made.part(part)).collect();
        graph.handle(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 0)?;
        graph.descriptors(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &parts)?;
        graph.finalize()?;
        Ok(OperationGraph { graph, _parts: made.made, has_bias })
    }

    /// The addresses of a call, as plans take them.
    ///
    /// # Errors
    /// The library refuses.
    pub fn pack(&self, api: &Arc<Api>, places: &Places, workspace: u64) -> Result<Descriptor, LibraryError> {
        let pack = api.descriptor(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        let (mut numbers, mut addresses) = (vec![X, W, Y], vec![places.x, places.w, places.y]);
        if self.has_bias {
            numbers.push(BIAS);
            addresses.push(places.bias.expect("a step with a bias says where it is"));
        }
        pack.ints(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &numbers)?;
        pack.addresses(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?;
        pack.addresses(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace])?;
        pack.finalize()?;
        Ok(pack)
    }
}
