//! What comes to a rank that waits for others.

use runner::collective::tcp;

/// The first words of a program that connects.
pub fn ranks(data: &[u8]) -> bool {
    tcp::is_understood(data)
}
