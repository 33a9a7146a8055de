//! Code of dependencies on bytes from outside, held to what this program promises: a panic in a decoder is an error of the file, not the
//! end of the run.

use anyhow::{Result, anyhow};
use std::any::Any;
use std::cell::Cell;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// How many calls of [`contained`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Counts a call, also where it ends by a panic.
struct Inside;

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs a decoder that this project has not written. Whatever it panics with is an error, and nothing is written of it to standard
/// error. What the decoder has half changed must not be used afterwards. Only the decoder belongs in `act`: a panic of our own code is a
/// bug, which must be seen.
///
/// # Errors
/// Those of `act`, and its panics.
pub fn contained<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(act).unwrap_or_else(|message| Err(anyhow!("{}", damaged(&message))))
}

/// A reader of a dependency, such as one that unpacks, whose panics are errors of what is read.
#[derive(Debug)]
pub struct Contained<R> {
    /// None after a panic: what is left of it is worth nothing.
    inner: Option<R>,
}

impl<R: Read> Contained<R> {
    /// That of `inner`.
    pub fn new(inner: R) -> Self {
        Contained { inner: Some(inner) }
    }
}

impl<R: Read> Read for Contained<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.inner.take().ok_or_else(|| io::Error::other("its decoder has failed before"))?;
        let (inner, read) = caught(|| {
            let read = inner.read(out);
            (inner, read)
        })
        .map_err(|message| io::Error::other(damaged(&message)))?;
        self.inner = Some(inner);
        read
    }
}

fn damaged(message: &str) -> String {
    format!("it is damaged in a way that its decoder does not expect ({message})")
}

/// What `act` gives, or the message of its panic.
fn caught<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            // A thread that ends has no count any more.
            if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
                before(info);
            }
        }));
    });
    let inside = Inside::enter();
    let result = catch_unwind(AssertUnwindSafe(act));
    drop(inside);
    result.map_err(|panic| message_of(panic.as_ref()))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no reason is given").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let numbers = [1, 2];
        for at in [1, 2] {
            let result = contained(|| Ok(numbers[at]));
            match at {
                1 => assert_eq!(result.unwrap(), 2),
                _ => assert!(result.unwrap_err().to_string().contains("index out of bounds")),
            }
        }
        assert_eq!(contained(|| Err::<(), _>(anyhow!("no image"))).unwrap_err().to_string(), "no image");
        // One within another, and none after them.
        let outer = contained(|| {
            assert!(contained(|| -> Result<()> { panic!("inner") }).is_err());
            panic!("outer {}", DEPTH.get())
        });
        assert!(Result::<()>::unwrap_err(outer).to_string().contains("(outer 1)"));
        assert_eq!(DEPTH.get(), 0);
    }

    struct Fails(usize);

    impl Read for Fails {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).expect("more was read than there is");
            out[0] = 7;
            Ok(1)
        }
    }

    #[test]
    fn a_reader_that_panics_breaks_off() {
        let mut reader = Contained::new(Fails(2));
        let mut out = Vec::new();
        let error = reader.read_to_end(&mut out).unwrap_err().to_string();
        assert!(out == [7, 7] && error.contains("more was read than there is"), "{out:?} {error}");
        assert!(reader.read(&mut [0]).unwrap_err().to_string().contains("before"));
    }
}
