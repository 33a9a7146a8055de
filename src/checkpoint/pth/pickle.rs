//! The pickle machine: protocols 2 to 4, as far as a state dict needs them.

use super::value::{Global, Memory, Storage, Tensor, Value, global, is_suspect, unread_storage, unread_tensor};
use super::{PthError, malformed};
use std::collections::HashMap;
use std::rc::Rc;

/// Values that a pickle may make; a state dict with ten thousand tensors makes some hundred thousand.
const MAX_VALUES: usize = 4 << 20;

/// Runs a pickle to its end.
pub(super) fn run(bytes: &[u8]) -> Result<Memory, PthError> {
    run_first(&mut { bytes })
}

/// Runs the pickle that `bytes` begin with to its end, after which they begin then.
pub(super) fn run_first(bytes: &mut &[u8]) -> Result<Memory, PthError> {
    let mut machine = Machine { bytes, ..Machine::default() };
    while machine.step()? {
        if machine.made > MAX_VALUES {
            return Err(malformed("the pickle makes too many values"));
        }
    }
    let result = machine.pop()?;
    *bytes = machine.bytes;
    let Machine { dicts, lists, storages, unread, .. } = machine;
    Ok(Memory { dicts, lists, storages, unread, result })
}

#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    stack: Vec<Value>,
    /// Heights of the stack at the marks.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    lists: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    storages: HashMap<Rc<str>, Storage>,
    unread: HashMap<Rc<str>, usize>,
    /// Work done so far: pushes, and elements copied.
    made: usize,
}

impl<'a> Machine<'a> {
    /// One instruction; false at the end.
    fn step(&mut self) -> Result<bool, PthError> {
        let op = self.byte()?;
        match op {
            0x80 => drop(self.byte()?),
            0x95 => drop(self.take(8)?),
            b'.' => return Ok(false),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.top()?.clone();
                self.push(top);
            }
            b'N' => self.push(Value::None),
            0x88 | 0x89 => self.push(Value::Bool(op == 0x88)),
            b'J' => {
                let v = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(v.into()));
            }
            b'K' => {
                let v = self.byte()?;
                self.push(Value::Int(v.into()));
            }
            b'M' => {
                let v = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(v.into()));
            }
            0x8a => {
                let len = self.byte()?.into();
                self.long(len)?;
            }
            0x8b => {
                let len = self.length4()?;
                self.long(len)?;
            }
            b'G' => {
                self.take(8)?;
                self.push(Value::Float);
            }
            b'X' => {
                let len = self.length4()?;
                self.text(len)?;
            }
            0x8c => {
                let len = self.byte()?.into();
                self.text(len)?;
            }
            b'U' | b'C' => {
                let len = self.byte()?.into();
                self.take(len)?;
                self.push(Value::Other);
            }
            b'T' | b'B' => {
                let len = self.length4()?;
                self.take(len)?;
                self.push(Value::Other);
            }
            b')' | b']' | 0x8f => self.push_list(Vec::new()),
            0x85..=0x87 => {
                let len = (op - 0x84) as usize;
                let from = self.stack.len().checked_sub(len).ok_or_else(underflow)?;
                let items = self.cut(from)?;
                self.push_list(items);
            }
            b't' | b'l' | 0x91 => {
                let items = self.pop_mark()?;
                self.push_list(items);
            }
            b'a' => {
                let item = self.pop()?;
                self.top_list()?.push(item);
            }
            b'e' | 0x90 => {
                let items = self.pop_mark()?;
                match self.top()? {
                    Value::Object(_) => {}
                    _ => self.top_list()?.extend(items),
                }
            }
            b'}' => self.push_dict(Vec::new()),
            b'd' => {
                let items = self.pop_mark()?;
                let items = pairs(items)?;
                self.push_dict(items);
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                match self.top()? {
                    Value::Object(_) => {}
                    _ => self.top_dict()?.push((key, value)),
                }
            }
            b'u' => {
                let items = self.pop_mark()?;
                match self.top()? {
                    Value::Object(_) => {}
                    _ => self.top_dict()?.extend(pairs(items)?),
                }
            }
            b'c' => {
                let module = self.line()?;
                let name = self.line()?;
                self.global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (&module, &name) {
                    (Value::Str(module), Value::Str(name)) => self.global(module, name)?,
                    _ => return Err(malformed("a global without a name")),
                }
            }
            b'R' | 0x81 => self.call()?,
            0x92 => {
                self.pop()?;
                self.call()?;
            }
            // Attributes of an object (the version numbers in a state dict's `_metadata`): not needed.
            b'b' => drop(self.pop()?),
            b'Q' => self.persistent()?,
            b'q' => {
                let at = self.byte()?.into();
                self.remember(at)?;
            }
            b'r' => {
                let at = self.length4()?;
                self.remember(at)?;
            }
            0x94 => self.remember(self.memo.len())?,
            b'h' => {
                let at = self.byte()?.into();
                self.recall(at)?;
            }
            b'j' => {
                let at = self.length4()?;
                self.recall(at)?;
            }
            _ => {
                return Err(malformed(format!("the pickle has the instruction 0x{op:02x}, which no state dict needs")));
            }
        }
        Ok(true)
    }

    /// The one place where Python would run code. Here it is a choice among a few meanings; what any other code would have made stays
    /// unknown.
    fn call(&mut self) -> Result<(), PthError> {
        let args = match self.pop()? {
            Value::List(at) => self.lists[at].clone(),
            _ => return Err(malformed("a call without arguments")),
        };
        self.made += args.len();
        let what = match self.pop()? {
            Value::Global(what) => what,
            Value::Object(name) => {
                // A parameter with attributes is its tensor.
                let parameter = &*name == "torch._utils._rebuild_parameter_with_state";
                let value = match args.first() {
                    Some(Value::Tensor(tensor)) if parameter => Value::Tensor(tensor.clone()),
                    _ => unread_tensor(&name, &args).map_or(Value::Object(name), Value::Unread),
                };
                self.push(value);
                return Ok(());
            }
            _ => return Err(malformed("a call of something that is no global")),
        };
        match (what, args.as_slice()) {
            (Global::OrderedDict, []) | (Global::DefaultDict, _) => self.push_dict(Vec::new()),
            (Global::OrderedDict, [Value::List(at)]) => {
                // A list of pairs, as Python 2 wrote them.
                let mut entries = Vec::new();
                for pair in &self.lists[*at] {
                    let pair = match pair {
                        Value::List(pair) => self.lists[*pair].as_slice(),
                        _ => &[],
                    };
                    let [key, value] = pair else { return Err(malformed("an ordered dict of something but pairs")) };
                    entries.push((key.clone(), value.clone()));
                }
                self.made += entries.len();
                self.push_dict(entries);
            }
            (Global::Size, [Value::List(at)]) => self.push(Value::List(*at)),
            (Global::RebuildParameter, [tensor @ (Value::Tensor(_) | Value::Unread(_) | Value::Object(_)), ..])
            | (Global::RebuildTensor, [tensor @ Value::Unread(_), ..]) => self.push(tensor.clone()),
            (Global::RebuildTensor, [Value::Storage(storage), Value::Int(offset), shape, stride, ..]) => {
                let tensor = Tensor {
                    storage: storage.clone(),
                    offset: usize::try_from(*offset).map_err(|_| malformed("a negative offset"))?,
                    shape: self.sizes(shape)?,
                    stride: self.sizes(stride)?,
                };
                self.push(Value::Tensor(Rc::new(tensor)));
            }
            (what, _) => return Err(malformed(format!("a call of {what:?} with arguments that do not fit"))),
        }
        Ok(())
    }

    /// `('storage', class, key, device, length)`; of a module that is pickled whole, in the old format, `('module', class, file, source)`.
    fn persistent(&mut self) -> Result<(), PthError> {
        let id = match self.pop()? {
            Value::List(at) => self.lists[at].as_slice(),
            _ => &[],
        };
        if let [Value::Str(kind), Value::Object(class), ..] = id
            && &**kind == "module"
        {
            let class = class.clone();
            self.push(Value::Object(class));
            return Ok(());
        }
        let [Value::Str(kind), class, Value::Str(key), _, Value::Int(len), ..] = id else {
            return Err(malformed("a reference to something that is no storage"));
        };
        let element = match class {
            Value::Global(Global::Storage(element)) => element,
            Value::Object(class) if &**kind == "storage" => {
                let (what, bytes) = unread_storage(class)
                    .ok_or_else(|| malformed(format!("a storage of the class `{class}`, which is not known")))?;
                self.unread.insert(key.clone(), bytes);
                self.push(Value::Unread(what.into()));
                return Ok(());
            }
            _ => return Err(malformed("a reference to something that is no storage")),
        };
        if &**kind != "storage" || key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(malformed(format!("a reference to `{kind}` `{key}`, which is no storage")));
        }
        let len = usize::try_from(*len).map_err(|_| malformed("a storage of negative length"))?;
        let storage = Storage { element: *element, key: key.clone(), len };
        match self.storages.get(&storage.key) {
            Some(known) if *known != storage => return Err(malformed("a storage is described in two ways")),
            Some(_) => {}
            None => _ = self.storages.insert(storage.key.clone(), storage.clone()),
        }
        self.push(Value::Storage(storage));
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), PthError> {
        let value = match global(module, name) {
            Some(known) => Value::Global(known),
            None if is_suspect(module, name) => return Err(PthError::Global(format!("{module}.{name}"))),
            None => Value::Object(format!("{module}.{name}").into()),
        };
        self.push(value);
        Ok(())
    }

    fn sizes(&mut self, list: &Value) -> Result<Vec<usize>, PthError> {
        let Value::List(at) = list else { return Err(malformed("a tensor without sizes")) };
        self.made += self.lists[*at].len();
        let size = |v: &Value| match v {
            Value::Int(n) => usize::try_from(*n).ok(),
            _ => None,
        };
        self.lists[*at].iter().map(|v| size(v).ok_or_else(|| malformed("sizes that are none"))).collect()
    }

    fn push(&mut self, value: Value) {
        self.made += 1;
        self.stack.push(value);
    }

    fn push_list(&mut self, items: Vec<Value>) {
        self.push(Value::List(self.lists.len()));
        self.lists.push(items);
    }

    fn push_dict(&mut self, items: Vec<(Value, Value)>) {
        self.push(Value::Dict(self.dicts.len()));
        self.dicts.push(items);
    }

    fn pop(&mut self) -> Result<Value, PthError> {
        if self.marks.last() == Some(&self.stack.len()) {
            return Err(underflow());
        }
        self.stack.pop().ok_or_else(underflow)
    }

    fn top(&self) -> Result<&Value, PthError> {
        self.stack.last().ok_or_else(underflow)
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>, PthError> {
        let from = self.marks.pop().ok_or_else(|| malformed("the pickle has no mark where it needs one"))?;
        self.cut(from)
    }

    fn cut(&mut self, from: usize) -> Result<Vec<Value>, PthError> {
        if from > self.stack.len() || self.marks.last().is_some_and(|mark| from < *mark) {
            return Err(underflow());
        }
        Ok(self.stack.split_off(from))
    }

    fn top_list(&mut self) -> Result<&mut Vec<Value>, PthError> {
        match *self.top()? {
            Value::List(at) => Ok(&mut self.lists[at]),
            _ => Err(malformed("something is appended to what is no list")),
        }
    }

    fn top_dict(&mut self) -> Result<&mut Vec<(Value, Value)>, PthError> {
        match *self.top()? {
            Value::Dict(at) => Ok(&mut self.dicts[at]),
            _ => Err(malformed("an entry is set in what is no dict")),
        }
    }

    fn remember(&mut self, at: usize) -> Result<(), PthError> {
        // Python numbers the memo without gaps; so does this, and no index can make it large.
        if at > self.memo.len() {
            return Err(malformed("the pickle's memo has gaps"));
        }
        let top = self.top()?.clone();
        self.made += 1;
        match self.memo.get_mut(at) {
            Some(slot) => *slot = Some(top),
            None => self.memo.push(Some(top)),
        }
        Ok(())
    }

    fn recall(&mut self, at: usize) -> Result<(), PthError> {
        let value = self.memo.get(at).cloned().flatten().ok_or_else(|| malformed("the pickle recalls nothing"))?;
        self.push(value);
        Ok(())
    }

    /// A little-endian two's complement number of any width.
    fn long(&mut self, len: usize) -> Result<(), PthError> {
        let bytes = self.take(len)?;
        if len > 8 {
            // Larger than any size; random states have such numbers.
            self.push(Value::Other);
            return Ok(());
        }
        let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..len].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(wide)));
        Ok(())
    }

    fn text(&mut self, len: usize) -> Result<(), PthError> {
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| malformed("a name is no UTF-8"))?;
        self.push(Value::Str(Rc::from(text)));
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, PthError> {
        Ok(self.array::<1>()?[0])
    }

    fn length4(&mut self) -> Result<usize, PthError> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PthError> {
        let (head, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(cut_short)?;
        self.bytes = rest;
        Ok(*head)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], PthError> {
        let (head, rest) = self.bytes.split_at_checked(len).ok_or_else(cut_short)?;
        self.bytes = rest;
        Ok(head)
    }

    fn line(&mut self) -> Result<&'a str, PthError> {
        let end = self.bytes.iter().position(|b| *b == b'\n').ok_or_else(cut_short)?;
        let line = self.take(end)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(|_| malformed("a global's name is no UTF-8"))
    }
}

fn pairs(items: Vec<Value>) -> Result<Vec<(Value, Value)>, PthError> {
    if !items.len().is_multiple_of(2) {
        return Err(malformed("a dict has a key without a value"));
    }
    let mut out = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        out.push((key, value));
    }
    Ok(out)
}

fn underflow() -> PthError {
    malformed("the pickle takes more than it put down")
}

/// The error of a pickle that ends before its end.
pub(super) fn cut_short() -> PthError {
    malformed("the pickle is cut short")
}
