//! The pickles in which `torch.save` keeps tensors by name: a closed part of the format, read as data.
//!
//! A pickle is a program for a stack machine that may call any function of Python. Here it may name the few
//! functions that put tensors together, and calling one of those is reading its arguments off. Any other name and
//! any other instruction is refused by name. Values are entries of a table that refer to one another by number, so
//! nothing recurses, and there are no more of them than instructions.

use cleave_numerics::DType;
use indexmap::IndexMap;

/// Most bytes of a string: names may be used often.
const TEXT: u64 = 4096;
/// Most dimensions of a tensor, as torch has it.
const RANK: usize = 64;
/// Most arguments that a known function takes.
const ARGUMENTS: usize = 8;

/// A tensor as a pickle describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored<'b> {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// Elements between neighbours in each dimension.
    pub strides: Vec<usize>,
    /// The first element's place in its storage.
    pub offset: usize,
    /// The storage's name: an entry of the archive's folder `data`.
    pub storage: &'b str,
    /// Elements, or bytes of an untyped storage, that the storage has.
    pub numel: usize,
    /// Bytes of one of these.
    pub unit: usize,
}

/// The tensors of a pickled dictionary by name.
///
/// # Errors
/// Where, what was found, and what it is called.
pub(super) fn tensors(bytes: &[u8]) -> Result<IndexMap<&str, Stored<'_>>, String> {
    let mut m = Machine { bytes, at: 0, stack: vec![], items: vec![], memo: IndexMap::new() };
    let root = m.run().map_err(|why| format!("byte {}: {why}", m.at))?;
    let Item::Dict(entries) = &m.items[root] else {
        return Err(format!("expected a dictionary of tensors, found {}", m.items[root].what()));
    };
    let mut found = IndexMap::new();
    for (key, value) in entries {
        let Item::Text(key) = &m.items[*key] else {
            return Err(format!("expected a name as key, found {}", m.items[*key].what()));
        };
        match &m.items[*value] {
            Item::Tensor(t) => found.insert(*key, t.clone()),
            other => return Err(format!("'{key}': expected a tensor, found {}", other.what())),
        };
    }
    Ok(found)
}

/// An entry of the table of values.
enum Item<'b> {
    None,
    Bool,
    Int(i64),
    Float,
    Text(&'b str),
    Tuple(Vec<usize>),
    List(Vec<usize>),
    Dict(Vec<(usize, usize)>),
    Name(Name),
    Storage { unit: Unit, key: &'b str, numel: usize },
    Tensor(Stored<'b>),
}

impl Item<'_> {
    fn what(&self) -> &'static str {
        match self {
            Item::None => "None",
            Item::Bool => "a bool",
            Item::Int(_) => "an integer",
            Item::Float => "a float",
            Item::Text(_) => "a string",
            Item::Tuple(_) => "a tuple",
            Item::List(_) => "a list",
            Item::Dict(_) => "a dictionary",
            Item::Name(_) => "a name",
            Item::Storage { .. } => "a storage",
            Item::Tensor(_) => "a tensor",
        }
    }
}

/// What a storage's elements are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Of(DType),
    Byte,
}

/// A name that a pickle may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    /// A dictionary.
    OrderedDict,
    /// A tensor on a typed storage.
    Tensor,
    /// A tensor on an untyped storage, with its element type.
    UntypedTensor,
    /// A parameter around a tensor.
    Parameter,
    /// A parameter with attributes of its own, which are left aside.
    ParameterWithState,
    Storage(Unit),
    DType(DType),
}

/// The known names.
fn name(module: &str, name: &str) -> Option<Name> {
    Some(match (module, name) {
        ("collections", "OrderedDict") => Name::OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2") => Name::Tensor,
        ("torch._utils", "_rebuild_tensor_v3") => Name::UntypedTensor,
        ("torch._utils", "_rebuild_parameter") => Name::Parameter,
        ("torch._utils", "_rebuild_parameter_with_state") => Name::ParameterWithState,
        ("torch.storage", "UntypedStorage") => Name::Storage(Unit::Byte),
        ("torch", "UntypedStorage") => Name::Storage(Unit::Byte),
        ("torch", "FloatStorage") => Name::Storage(Unit::Of(DType::F32)),
        ("torch", "DoubleStorage") => Name::Storage(Unit::Of(DType::F64)),
        ("torch", "HalfStorage") => Name::Storage(Unit::Of(DType::F16)),
        ("torch", "BFloat16Storage") => Name::Storage(Unit::Of(DType::BF16)),
        ("torch", "ByteStorage") => Name::Storage(Unit::Of(DType::U8)),
        ("torch", "CharStorage") => Name::Storage(Unit::Of(DType::I8)),
        ("torch", "ShortStorage") => Name::Storage(Unit::Of(DType::I16)),
        ("torch", "IntStorage") => Name::Storage(Unit::Of(DType::I32)),
        ("torch", "LongStorage") => Name::Storage(Unit::Of(DType::I64)),
        ("torch", "BoolStorage") => Name::Storage(Unit::Of(DType::Bool)),
        ("torch", other) => Name::DType(DType::from_torch_name(other)?),
        _ => return None,
    })
}

struct Machine<'b> {
    bytes: &'b [u8],
    at: usize,
    /// Numbers of items; none for a mark.
    stack: Vec<Option<usize>>,
    items: Vec<Item<'b>>,
    memo: IndexMap<u32, usize>,
}

type Step<T> = Result<T, String>;

impl<'b> Machine<'b> {
    /// Runs to the end; the item that is left.
    fn run(&mut self) -> Step<usize> {
        loop {
            let op = self.take(1)?[0];
            match op {
                b'.' => {
                    let root = self.pop()?;
                    let rest = self.bytes.len() - self.at;
                    return if rest == 0 { Ok(root) } else { Err(format!("{rest} bytes stand behind the end")) };
                }
                0x80 => match self.take(1)?[0] {
                    2 => {}
                    other => return Err(format!("a pickle of protocol {other}, expected 2")),
                },
                b'(' => self.stack.push(None),
                b'0' => drop(self.stack.pop().ok_or("nothing to drop")?),
                b'N' => self.push(Item::None),
                0x88 | 0x89 => self.push(Item::Bool),
                b'K' => self.integer(1, false)?,
                b'M' => self.integer(2, false)?,
                b'J' => self.integer(4, true)?,
                0x8a => {
                    let n = usize::from(self.take(1)?[0]);
                    if n > 8 {
                        return Err(format!("an integer of {n} bytes, expected 8 at most"));
                    }
                    self.integer(n, true)?;
                }
                b'G' => {
                    self.take(8)?;
                    self.push(Item::Float);
                }
                b'X' => {
                    let n = self.number(4)?;
                    if n > TEXT {
                        return Err(format!("a string of {n} bytes, expected {TEXT} at most"));
                    }
                    let text = self.take(n as usize)?;
                    let text = std::str::from_utf8(text).map_err(|_| "a string that is not UTF-8")?;
                    self.push(Item::Text(text));
                }
                b')' => self.push(Item::Tuple(vec![])),
                0x85..=0x87 => {
                    let mut items: Vec<usize> = (0..op - 0x84).map(|_| self.pop()).collect::<Step<_>>()?;
                    items.reverse();
                    self.push(Item::Tuple(items));
                }
                b't' => {
                    let items = self.marked()?;
                    self.push(Item::Tuple(items));
                }
                b']' => self.push(Item::List(vec![])),
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.marked()?;
                    self.append(items)?;
                }
                b'}' => self.push(Item::Dict(vec![])),
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set(&[key, value])?;
                }
                b'u' => {
                    let items = self.marked()?;
                    self.set(&items)?;
                }
                b'q' => self.keep(1)?,
                b'r' => self.keep(4)?,
                b'h' => self.recall(1)?,
                b'j' => self.recall(4)?,
                b'c' => {
                    let (module, of) = (self.line()?, self.line()?);
                    let known = name(module, of);
                    let refused =
                        || format!("it names {module}.{of}, which is no part of a tensor and is never called");
                    self.push(Item::Name(known.ok_or_else(refused)?));
                }
                b'Q' => {
                    let id = self.pop()?;
                    let storage = self.storage(id)?;
                    self.push(storage);
                }
                b'R' => {
                    let (args, function) = (self.pop()?, self.pop()?);
                    self.call(function, args)?;
                }
                b'b' => {
                    // torch keeps attributes on the dictionary of a module's tensors.
                    self.pop()?;
                    let of = self.top()?;
                    if !matches!(self.items[of], Item::Dict(_)) {
                        return Err(format!("it sets the state of {}", self.items[of].what()));
                    }
                }
                other => return Err(format!("instruction {other:#04x} is no part of a pickle of tensors")),
            }
        }
    }

    fn take(&mut self, n: usize) -> Step<&'b [u8]> {
        let end = self.at.checked_add(n).filter(|e| *e <= self.bytes.len()).ok_or("it is cut short")?;
        let part = &self.bytes[self.at..end];
        self.at = end;
        Ok(part)
    }

    /// An unsigned number of so many bytes.
    fn number(&mut self, n: usize) -> Step<u64> {
        Ok(self.take(n)?.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
    }

    fn integer(&mut self, n: usize, signed: bool) -> Step<()> {
        let v = self.number(n)?;
        let v = if signed && (1..8).contains(&n) {
            let shift = 64 - 8 * n as u32;
            ((v << shift) as i64) >> shift
        } else {
            v as i64
        };
        self.push(Item::Int(v));
        Ok(())
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> Step<&'b str> {
        let n = self.bytes[self.at..].iter().position(|b| *b == b'\n').ok_or("it is cut short")?;
        let text = self.take(n)?;
        self.take(1)?;
        std::str::from_utf8(text).map_err(|_| "a name that is not UTF-8".into())
    }

    fn push(&mut self, item: Item<'b>) {
        self.items.push(item);
        self.stack.push(Some(self.items.len() - 1));
    }

    fn pop(&mut self) -> Step<usize> {
        self.stack.pop().flatten().ok_or_else(|| "a value is missing".into())
    }

    fn top(&self) -> Step<usize> {
        self.stack.last().copied().flatten().ok_or_else(|| "a value is missing".into())
    }

    /// The values behind the last mark.
    fn marked(&mut self) -> Step<Vec<usize>> {
        let mark = self.stack.iter().rposition(Option::is_none).ok_or("a mark is missing")?;
        let items = self.stack.split_off(mark + 1).into_iter().flatten().collect();
        self.stack.pop();
        Ok(items)
    }

    fn append(&mut self, more: Vec<usize>) -> Step<()> {
        let to = self.top()?;
        match &mut self.items[to] {
            Item::List(items) => items.extend(more),
            other => return Err(format!("it appends to {}", other.what())),
        }
        Ok(())
    }

    fn set(&mut self, pairs: &[usize]) -> Step<()> {
        let to = self.top()?;
        match &mut self.items[to] {
            Item::Dict(entries) if pairs.len().is_multiple_of(2) => {
                entries.extend(pairs.chunks(2).map(|p| (p[0], p[1])))
            }
            Item::Dict(_) => return Err("a key without a value".into()),
            other => return Err(format!("it sets entries of {}", other.what())),
        }
        Ok(())
    }

    fn keep(&mut self, n: usize) -> Step<()> {
        let slot = self.number(n)? as u32;
        let item = self.top()?;
        self.memo.insert(slot, item);
        Ok(())
    }

    fn recall(&mut self, n: usize) -> Step<()> {
        let slot = self.number(n)? as u32;
        let item = *self.memo.get(&slot).ok_or_else(|| format!("nothing was kept as {slot}"))?;
        self.stack.push(Some(item));
        Ok(())
    }

    fn tuple(&self, id: usize) -> Step<&[usize]> {
        match &self.items[id] {
            Item::Tuple(items) => Ok(items),
            other => Err(format!("expected a tuple, found {}", other.what())),
        }
    }

    fn size(&self, id: usize) -> Step<usize> {
        match &self.items[id] {
            Item::Int(i) => usize::try_from(*i).map_err(|_| format!("expected a number from 0, found {i}")),
            other => Err(format!("expected a number from 0, found {}", other.what())),
        }
    }

    fn sizes(&self, id: usize) -> Step<Vec<usize>> {
        let items = self.tuple(id)?;
        if items.len() > RANK {
            return Err(format!("a tensor of {} dimensions, expected {RANK} at most", items.len()));
        }
        items.iter().map(|i| self.size(*i)).collect()
    }

    /// `("storage", type, key, device, number of elements)`, the only thing that torch keeps outside of the pickle.
    fn storage(&self, id: usize) -> Step<Item<'b>> {
        let [kind, ty, key, _, numel] = self.tuple(id)? else {
            return Err("expected a storage's type, name, device and size".into());
        };
        match (&self.items[*kind], &self.items[*ty], &self.items[*key]) {
            (Item::Text("storage"), Item::Name(Name::Storage(unit)), Item::Text(key)) => {
                Ok(Item::Storage { unit: *unit, key, numel: self.size(*numel)? })
            }
            _ => Err("expected a storage's type, name, device and size".into()),
        }
    }

    /// What a known function gives for these arguments.
    fn call(&mut self, function: usize, args: usize) -> Step<()> {
        let Item::Name(function) = self.items[function] else {
            return Err(format!("it calls {}", self.items[function].what()));
        };
        let unlike = |n: usize| format!("a call with {n} arguments, which is not how torch writes tensors");
        let args = self.tuple(args)?;
        let args = if args.len() <= ARGUMENTS { args.to_vec() } else { return Err(unlike(args.len())) };
        let item = match (function, args.as_slice()) {
            (Name::OrderedDict, []) => Item::Dict(vec![]),
            // Whether a gradient is asked for, hooks and metadata are of no concern here.
            (Name::Tensor, [storage, offset, shape, strides, _, _] | [storage, offset, shape, strides, _, _, _]) => {
                Item::Tensor(self.tensor(*storage, [*offset, *shape, *strides], None)?)
            }
            (
                Name::UntypedTensor,
                [storage, offset, shape, strides, _, _, dtype] | [storage, offset, shape, strides, _, _, dtype, _],
            ) => Item::Tensor(self.tensor(*storage, [*offset, *shape, *strides], Some(*dtype))?),
            (Name::Parameter, [data, _, _]) | (Name::ParameterWithState, [data, _, _, _]) => match &self.items[*data] {
                Item::Tensor(t) => Item::Tensor(t.clone()),
                other => return Err(format!("a parameter around {}", other.what())),
            },
            (_, args) => return Err(unlike(args.len())),
        };
        self.push(item);
        Ok(())
    }

    fn tensor(&self, storage: usize, [offset, shape, strides]: [usize; 3], dtype: Option<usize>) -> Step<Stored<'b>> {
        let Item::Storage { unit, key, numel } = &self.items[storage] else {
            return Err(format!("a tensor on {}", self.items[storage].what()));
        };
        let dtype = match (unit, dtype.map(|d| &self.items[d])) {
            (Unit::Of(d), None) => *d,
            (_, Some(Item::Name(Name::DType(d)))) => *d,
            _ => return Err("a tensor without an element type".into()),
        };
        let unit = match unit {
            Unit::Of(d) => d.size(),
            Unit::Byte => 1,
        };
        let (shape, strides, offset) = (self.sizes(shape)?, self.sizes(strides)?, self.size(offset)?);
        Ok(Stored { dtype, shape, strides, offset, storage: key, numel: *numel, unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"w": tensor}` as torch writes it, with this for the tensor.
    fn dict(value: &[u8]) -> Vec<u8> {
        [b"\x80\x02}q\x00X\x01\x00\x00\x00w", value, b"s."].concat()
    }

    const TENSOR: &[u8] = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nHalfStorage\nX\x01\x00\x00\x007X\x03\x00\x00\x00cpuK\x06tQK\x01K\x02K\x03\x86K\x01K\x02\x86\x89ccollections\nOrderedDict\n)RtR";

    fn error(bytes: &[u8]) -> String {
        tensors(bytes).err().unwrap_or_default()
    }

    #[test]
    fn tensors_and_parameters_are_read() {
        let want = Stored {
            dtype: DType::F16,
            shape: vec![2, 3],
            strides: vec![1, 2],
            offset: 1,
            storage: "7",
            numel: 6,
            unit: 2,
        };
        assert_eq!(tensors(&dict(TENSOR)).unwrap()["w"], want);
        let param =
            [b"ctorch._utils\n_rebuild_parameter\n", TENSOR, b"\x88ccollections\nOrderedDict\n)R\x87R"].concat();
        assert_eq!(tensors(&dict(&param)).unwrap()["w"], want);
        let ordered =
            [b"\x80\x02ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00w", TENSOR, b"u}X\x09\x00\x00\x00_metadataNsb."];
        assert_eq!(tensors(&ordered.concat()).unwrap()["w"], want);
        let v3: Vec<u8> = b"ctorch._utils\n_rebuild_tensor_v3\n((X\x07\x00\x00\x00storagectorch.storage\nUntypedStorage\nX\x01\x00\x00\x007X\x03\x00\x00\x00cpuK\x06tQK\x00K\x03\x85K\x01\x85\x89ccollections\nOrderedDict\n)Rctorch\nuint16\ntR".to_vec();
        let v3 = dict(&v3);
        let t = &tensors(&v3).unwrap()["w"];
        assert_eq!((t.dtype, t.shape.as_slice(), t.numel, t.unit), (DType::U16, &[3][..], 6, 1));
    }

    #[test]
    fn what_is_no_tensor_is_refused_by_name() {
        for (value, why) in [
            (
                &b"cos\nsystem\nX\x02\x00\x00\x00ls\x85R"[..],
                "it names os.system, which is no part of a tensor and is never called",
            ),
            (b"cbuiltins\neval\n", "it names builtins.eval"),
            (b"ctorch._utils\n_rebuild_sparse_tensor\n", "it names torch._utils._rebuild_sparse_tensor"),
            (b"ctorch\nload\n", "it names torch.load"),
            (b"(X\x02\x00\x00\x00lsios\nsystem\n", "instruction 0x69"),
            (b"X\x01\x00\x00\x00a)\x81", "instruction 0x81"),
            (b"\x94", "instruction 0x94"),
            (b"ctorch._utils\n_rebuild_parameter\nK\x01K\x02K\x03\x87R", "a parameter around an integer"),
            (b"ctorch._utils\n_rebuild_parameter\n)R", "a call with 0 arguments"),
            (b"X\x01\x00\x00\x00a)R", "it calls a string"),
            (b"K\x01NN\x86b", "it sets the state of an integer"),
            (b"K\x01Q", "expected a tuple, found an integer"),
            (b"K\x01", "'w': expected a tensor, found an integer"),
            (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01", "an integer of 9 bytes, expected 8 at most"),
            (b"X\xff\xff\xff\xffa", "a string of 4294967295 bytes, expected 4096 at most"),
            (b"X\xff\x00\x00\x00a", "it is cut short"),
            (b"h\x07", "nothing was kept as 7"),
            (b"t", "a mark is missing"),
        ] {
            let e = error(&dict(value));
            assert!(e.contains(why), "{why}: {e}");
        }
        assert!(error(b"\x80\x04.").contains("a pickle of protocol 4, expected 2"));
        assert!(error(b"\x80\x02].").contains("expected a dictionary of tensors, found a list"));
        assert!(error(b"\x80\x02}.}").contains("1 bytes stand behind the end"));
        assert!(error(b"").contains("it is cut short"));
    }

    #[test]
    fn values_that_hold_themselves_and_deep_ones_end() {
        // A list in itself, a dictionary in itself, and tuples in tuples.
        assert!(error(b"\x80\x02]q\x00h\x00a.").contains("found a list"));
        assert!(
            error(b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.").contains("'a': expected a tensor, found a dictionary")
        );
        let deep = [b"\x80\x02)".to_vec(), vec![0x85; 1 << 20], b".".to_vec()].concat();
        assert!(error(&deep).contains("found a tuple"));
        let doubled = [b"\x80\x02)".to_vec(), b"q\x00h\x00\x86".repeat(64), b".".to_vec()].concat();
        assert!(error(&doubled).contains("found a tuple"));
    }

    #[test]
    fn every_cut_and_every_other_byte_is_survived() {
        let whole = dict(TENSOR);
        for end in 0..whole.len() {
            assert!(tensors(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let _ = tensors(&bytes);
            }
        }
    }
}
