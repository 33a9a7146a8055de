//! What a pickle may hold.

use crate::checkpoint::element::Element;
use crate::checkpoint::unread::Unread;
use std::collections::HashMap;
use std::rc::Rc;

/// An object that a pickle made. Containers lie in [`Memory`] and are referred to by index, as a pickle may refer to
/// one many times, or to itself. Copies of a value are cheap, whatever it holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float,
    Str(Rc<str>),
    /// Index in [`Memory::lists`]; tuples, lists, `torch.Size`.
    List(usize),
    /// Index in [`Memory::dicts`].
    Dict(usize),
    Global(Global),
    Storage(Storage),
    Tensor(Rc<Tensor>),
    /// A tensor of a kind that is not read, or the storage of one, with what it is: `of torch.complex64`.
    Unread(Rc<Unread>),
    /// What Python would have made by code of this name, or that code itself. It is not run, and nothing is known of it.
    Object(Rc<str>),
    /// Something with no part in a state dict's tensors (byte strings).
    Other,
}

/// The globals that are known, each by what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    OrderedDict,
    DefaultDict,
    RebuildTensor,
    RebuildParameter,
    Size,
    Storage(Element),
}

/// A block of elements in the archive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Storage {
    pub element: Element,
    pub key: Rc<str>,
    pub len: usize,
}

/// A window into a storage; nothing about it is checked yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    pub storage: Storage,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub stride: Vec<usize>,
}

/// What a pickle left behind.
#[derive(Debug)]
pub(super) struct Memory {
    pub dicts: Vec<Vec<(Value, Value)>>,
    pub lists: Vec<Vec<Value>>,
    /// The storages that it refers to, by key.
    pub storages: HashMap<Rc<str>, Storage>,
    /// Of those whose elements are not read: the bytes of an element.
    pub unread: HashMap<Rc<str>, usize>,
    pub result: Value,
}

/// What a tensor is whose storage has this class, of those that are not read, and the bytes of an element. The type of some stands with the tensor alone.
pub(super) fn unread_storage(class: &str) -> Option<(Unread, usize)> {
    let quantised = |name| Unread::Quantised(Some(name));
    Some(match class {
        "torch.ComplexFloatStorage" => (Unread::Type("complex64".into()), 8),
        "torch.ComplexDoubleStorage" => (Unread::Type("complex128".into()), 16),
        "torch.QInt8Storage" => (quantised("qint8"), 1),
        "torch.QUInt8Storage" => (quantised("quint8"), 1),
        "torch.QInt32Storage" => (quantised("qint32"), 4),
        "torch.QUInt4x2Storage" => (quantised("quint4x2"), 1),
        "torch.QUInt2x4Storage" => (quantised("quint2x4"), 1),
        "torch.storage.UntypedStorage" => (Unread::Other("of a type that is not known".into()), 1),
        _ => return None,
    })
}

/// What a tensor is that a function of PyTorch's with this name makes of these arguments, if it makes one.
pub(super) fn unread_tensor(function: &str, arguments: &[Value]) -> Option<Rc<Unread>> {
    let dtype = arguments.iter().find_map(|value| match value {
        Value::Object(name) => name.strip_prefix("torch.").filter(|name| !name.contains('.') && *name != "device"),
        _ => None,
    });
    let stored = arguments.iter().find_map(|value| match value {
        Value::Unread(what) => Some(what.clone()),
        _ => None,
    });
    let other = |what: String| Unread::Other(what).into();
    Some(match function.strip_prefix("torch._utils._rebuild_") {
        Some("tensor_v3") => dtype.map(|dtype| Unread::Type(dtype.into()).into()).or(stored)?,
        Some("qtensor") => stored.unwrap_or_else(|| Unread::Quantised(None).into()),
        Some("sparse_tensor" | "sparse_csr_tensor") => Unread::Sparse.into(),
        Some("meta_tensor_no_storage") => Unread::Meta.into(),
        Some("nested_tensor") => other("nested".into()),
        Some(name) if name.contains("tensor") => other(format!("of another kind (`{function}`)")),
        _ if function == "torch._tensor._rebuild_from_type_v2" => other(match arguments.get(1) {
            Some(Value::Object(class)) => format!("of a class of its own (`{class}`)"),
            _ => "of a class of its own".into(),
        }),
        _ => return stored,
    })
}

/// Modules of which no state dict or what lies beside one has anything: they reach out of Python.
const REACHING_OUT: [&str; 16] = [
    "posix",
    "nt",
    "os",
    "sys",
    "subprocess",
    "shutil",
    "socket",
    "runpy",
    "importlib",
    "ctypes",
    "pty",
    "commands",
    "code",
    "pip",
    "webbrowser",
    "urllib",
];
/// Functions of Python itself that run what they are given.
const RUNNING: [&str; 7] = ["eval", "exec", "execfile", "compile", "open", "__import__", "getattr"];

/// Whether code of this name has no honest place in a file of weights. It would not be run either.
pub(super) fn is_suspect(module: &str, name: &str) -> bool {
    let package = module.split('.').next().unwrap_or_default();
    REACHING_OUT.contains(&package)
        || matches!(module, "builtins" | "__builtin__") && RUNNING.contains(&name)
        || module == "torch" && name == "load"
}

pub(super) fn global(module: &str, name: &str) -> Option<Global> {
    Some(match (module, name) {
        ("collections", "OrderedDict") => Global::OrderedDict,
        ("collections", "defaultdict") => Global::DefaultDict,
        ("torch._utils", "_rebuild_tensor_v2" | "_rebuild_tensor") => Global::RebuildTensor,
        ("torch._utils", "_rebuild_parameter") => Global::RebuildParameter,
        ("torch", "Size") => Global::Size,
        ("torch", _) => Global::Storage(match name {
            "HalfStorage" => Element::F16,
            "BFloat16Storage" => Element::BF16,
            "FloatStorage" => Element::F32,
            "DoubleStorage" => Element::F64,
            "CharStorage" => Element::I8,
            "ShortStorage" => Element::I16,
            "IntStorage" => Element::I32,
            "LongStorage" => Element::I64,
            "ByteStorage" => Element::U8,
            "BoolStorage" => Element::Bool,
            _ => return None,
        }),
        _ => return None,
    })
}
