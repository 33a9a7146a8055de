//! What describing a source has found, kept until the source is opened: a command does both, and to list files may take seconds.

use anyhow::Result;
use std::sync::{Mutex, PoisonError};

/// What was found last, and by which options.
pub(super) struct Found<K, V>(Mutex<Option<(K, V)>>);

impl<K: PartialEq + Clone, V> Found<K, V> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Found(Mutex::new(None))
    }

    /// Looks at what `find` finds by these options, or has found before.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn look<T>(&self, key: &K, find: impl FnOnce() -> Result<V>, look: impl FnOnce(&V) -> T) -> Result<T> {
        let value = self.take(key, find)?;
        let result = look(&value);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((key.clone(), value));
        Ok(result)
    }

    /// The same for a caller that keeps it: next time it is looked for anew.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn take(&self, key: &K, find: impl FnOnce() -> Result<V>) -> Result<V> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take_if(|(of, _)| of == key);
        match kept {
            Some((_, value)) => Ok(value),
            None => find(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_was_found_is_looked_for_once_until_it_is_taken() {
        let (found, count) = (Found::new(), Cell::new(0));
        let find = || {
            count.set(count.get() + 1);
            Ok(count.get())
        };
        for _ in 0..2 {
            assert_eq!(found.look(&"a", find, |value| *value).unwrap(), 1);
        }
        assert_eq!(found.take(&"a", find).unwrap(), 1);
        assert_eq!(found.take(&"a", find).unwrap(), 2, "it may have changed");
        found.look(&"a", find, |_| ()).unwrap();
        assert_eq!(found.take(&"b", find).unwrap(), 4, "that of others is another");
        assert!(found.look(&"c", || anyhow::bail!("none"), |_| ()).is_err());
    }
}
