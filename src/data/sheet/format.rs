//! How the cells of a text are written.

use encoding_rs::Encoding;
use serde::{Deserialize, Serialize};

/// How the cells of a text are written. What is in a file of JSON Lines or Parquet says that itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// What stands between columns. `None`: that of `,`, `;`, tab and `|` of which the first line has most.
    #[serde(default)]
    pub separator: Option<u8>,
    /// The first line names the columns; else their names are their numbers from 1.
    pub header: bool,
    /// What a cell stands in that has a separator or the end of a line in it; `None`: no cell has.
    #[serde(default = "usual_quote", skip_serializing_if = "is_usual_quote")]
    pub quote: Option<u8>,
    /// What bytes stand for where no mark at the begin says it; `None`: UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "by_name")]
    pub encoding: Option<&'static Encoding>,
}

impl Format {
    /// Whether a configuration can say so: no part of a longer character, nor of the end of a line, stands between cells or around them.
    pub fn is_sane(&self) -> bool {
        let alone = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii() && byte != b'\n' && byte != b'\r');
        alone(self.separator) && alone(self.quote) && (self.quote.is_none() || self.separator != self.quote)
    }
}

impl Default for Format {
    /// A table with names, in UTF-8.
    fn default() -> Self {
        Format { separator: None, header: true, quote: usual_quote(), encoding: None }
    }
}

#[allow(clippy::unnecessary_wraps)] // As serde wants it.
fn usual_quote() -> Option<u8> {
    Some(b'"')
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde wants it.
fn is_usual_quote(quote: &Option<u8>) -> bool {
    *quote == usual_quote()
}

/// An encoding as the text that names it.
mod by_name {
    use encoding_rs::Encoding;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option)] // As serde wants it.
    pub fn serialize<S: Serializer>(encoding: &Option<&'static Encoding>, to: S) -> Result<S::Ok, S::Error> {
        encoding.map(Encoding::name).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'static Encoding>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        Ok(name.and_then(|name| Encoding::for_label_no_replacement(name.as_bytes())))
    }
}
