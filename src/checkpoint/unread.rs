//! Tensors of a file that are not read: what each is, and what to do about it.

use std::fmt;

/// A tensor that is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// Of any sparse layout.
    Sparse,
    /// Quantised, of the type that PyTorch calls so, if the file names it: `qint8`.
    Quantised(Option<&'static str>),
    /// Of the type that PyTorch calls so: `complex64`.
    Type(String),
    /// On the device `meta`.
    Meta,
    /// In words that follow "it is".
    Other(String),
}

impl Unread {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Unread::Sparse => "in PyTorch, `.to_dense()` makes a tensor of it that is read",
            Unread::Quantised(_) => "in PyTorch, `.dequantize()` makes a tensor of it that is read",
            Unread::Type(name) if name.starts_with("complex") => "there are no models of complex numbers here",
            Unread::Type(_) => "in PyTorch, `.float()` makes a tensor of it that is read",
            Unread::Meta => "save the model when its weights are there",
            Unread::Other(_) => {
                "only tensors of floats, whole numbers and truth values are read, each with all its elements"
            }
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Sparse => write!(f, "sparse"),
            Unread::Quantised(None) => write!(f, "quantised"),
            Unread::Quantised(Some(name)) => write!(f, "quantised, of torch.{name}"),
            Unread::Type(name) => write!(f, "of torch.{name}"),
            Unread::Meta => write!(f, "on the `meta` device, which has no values"),
            Unread::Other(what) => write!(f, "{what}"),
        }
    }
}
