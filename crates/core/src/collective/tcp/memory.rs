//! Memory that processes of one machine share. What a rank has for the others it writes there, once if all are given the
//! same, and they read it where it lies. Over their connections goes only where that is.

use crate::collective::messages::{Message, Parcels};
use crate::system::unguessable;
use memmap2::{Mmap, MmapMut};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

/// Shorter messages go over the connection, which is written and read for them anyway. Other bounds were not measured.
const SHORT: usize = 16 << 10;

/// What lies in an area begins at multiples of it: cache lines, so that no two ranks read the same.
const ALIGN: usize = 64;

/// Least bytes of an area.
const LEAST: usize = 256 << 10;

/// Random bytes at the beginning of an area, by which another process sees that it has opened this one and no other.
const KEY: usize = 16;

/// Where a message lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    area: usize,
    at: usize,
    len: usize,
}

impl Place {
    /// Bytes of it in a frame.
    pub const BYTES: usize = 24;

    /// For a frame.
    pub fn to_bytes(self) -> [u8; Place::BYTES] {
        let mut bytes = [0; Place::BYTES];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip([self.area, self.at, self.len]) {
            chunk.copy_from_slice(&(number as u64).to_le_bytes());
        }
        bytes
    }

    /// From a frame; `None` if that is no place.
    pub fn parse(bytes: &[u8]) -> Option<Place> {
        let number = |nth: usize| {
            let bytes = bytes.get(nth * 8..nth * 8 + 8)?.try_into().ok()?;
            usize::try_from(u64::from_le_bytes(bytes)).ok()
        };
        Some(Place { area: number(0)?, at: number(1)?, len: number(2)? })
    }
}

/// What another process needs to open the areas of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    process: u32,
    /// Descriptors of that process.
    areas: [i32; 2],
    key: [u8; KEY],
}

/// What a rank has for others.
///
/// There are two areas, which are written in turn. A rank that gives something for the next exchange has read all that it was
/// given in the one before. So when an exchange begins, all ranks have ended the last one but one, and its messages are not read any more.
#[derive(Debug)]
pub struct Outbox {
    areas: [Own; 2],
    key: [u8; KEY],
    turn: usize,
}

/// An area that this rank writes.
#[derive(Debug)]
struct Own {
    file: File,
    map: Option<MmapMut>,
}

impl Outbox {
    /// With nothing in it; `None` if the system has no such memory.
    pub fn new() -> Option<Outbox> {
        let key: [u8; KEY] = unguessable();
        let area = || -> Option<Own> {
            let mut own = Own { file: anonymous().ok()?, map: None };
            own.hold(LEAST)?[..KEY].copy_from_slice(&key);
            Some(own)
        };
        Some(Outbox { areas: [area()?, area()?], key, turn: 0 })
    }

    /// For processes of this machine.
    pub fn offer(&self) -> Option<Offer> {
        let areas = [number(&self.areas[0].file)?, number(&self.areas[1].file)?];
        Some(Offer { process: std::process::id(), areas, key: self.key })
    }

    /// Writes what these ranks are given in an exchange, once if all are given the same; where it lies for each rank. `None` for those
    /// who are given so little that it is better sent, and for all if there is no memory for it.
    pub fn put(&mut self, parcels: &dyn Parcels, readers: &[bool]) -> Vec<Option<Place>> {
        let (area, same) = (self.turn, parcels.same());
        let mut end = KEY;
        let mut places: Vec<Option<Place>> = vec![None; readers.len()];
        let mut written: Vec<(usize, Place)> = Vec::new();
        for to in (0..readers.len()).filter(|to| readers[*to]) {
            let len = parcels.len(to);
            places[to] = match written.first().filter(|_| same) {
                Some((_, place)) => Some(*place),
                None if len < SHORT => None,
                None => {
                    let place = Place { area, at: end.next_multiple_of(ALIGN), len };
                    end = place.at + len;
                    written.push((to, place));
                    Some(place)
                }
            };
        }
        if written.is_empty() {
            return places;
        }
        let Some(memory) = self.areas[area].hold(end) else { return vec![None; readers.len()] };
        for (to, Place { at, len, .. }) in written {
            parcels.write(to, &mut memory[at..at + len]);
        }
        self.turn = 1 - self.turn;
        places
    }
}

impl Own {
    /// The memory, which has at least so many bytes then.
    fn hold(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.map.as_ref().is_none_or(|map| map.len() < bytes) {
            let wanted = bytes.checked_next_power_of_two()?.max(LEAST);
            // More than that the system would answer with a signal.
            if wanted as u64 > longest_file() {
                return None;
            }
            self.file.set_len(wanted as u64).ok()?;
            // SAFETY: the file has no name, so no process shortens it. Others only read messages whose place a frame has given.
            self.map = Some(unsafe { MmapMut::map_mut(&self.file) }.ok()?);
        }
        self.map.as_deref_mut()
    }
}

/// What another rank has for this one.
#[derive(Debug)]
pub struct Incoming {
    areas: [Other; 2],
}

/// An area that another rank writes.
#[derive(Debug)]
struct Other {
    file: File,
    map: Option<Arc<Mmap>>,
}

impl Incoming {
    /// The areas of another rank; `None` if they cannot be opened, as those of another machine.
    pub fn open(offer: &Offer) -> Option<Incoming> {
        let open = |descriptor: i32| -> Option<Other> {
            let mut file = open_of(offer.process, descriptor).ok()?;
            let mut key = [0; KEY];
            file.read_exact(&mut key).ok()?;
            let mut other = Other { file, map: None };
            (key == offer.key && other.hold(LEAST).is_ok()).then_some(other)
        };
        Some(Incoming { areas: [open(offer.areas[0])?, open(offer.areas[1])?] })
    }

    /// What lies there.
    ///
    /// # Errors
    /// There is no such place, or no memory for it.
    pub fn message(&mut self, place: Place) -> io::Result<Message> {
        let Place { area, at, len } = place;
        let wrong = || io::Error::new(ErrorKind::InvalidData, "this is not where a rank writes");
        let other = self.areas.get_mut(area).ok_or_else(wrong)?;
        let end = at.checked_add(len).filter(|_| at.is_multiple_of(ALIGN)).ok_or_else(wrong)?;
        Ok(Message::shared(other.hold(end)?, at..end))
    }
}

impl Other {
    fn hold(&mut self, bytes: usize) -> io::Result<Arc<Mmap>> {
        if let Some(map) = self.map.as_ref().filter(|map| map.len() >= bytes) {
            return Ok(map.clone());
        }
        if self.file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::new(ErrorKind::InvalidData, "this is not where a rank writes"));
        }
        // SAFETY: the file has no name, so no process shortens it. The other rank does not write over a message before this one has read it.
        let map = Arc::new(unsafe { Mmap::map(&self.file) }?);
        self.map = Some(map.clone());
        Ok(map)
    }
}

/// A file in memory, without a name.
#[cfg(target_os = "linux")]
fn anonymous() -> io::Result<File> {
    use std::os::fd::FromRawFd;
    // By its number: C libraries before glibc 2.27, which the wheels run on, have no function for it.
    // SAFETY: the name ends with a zero.
    let descriptor = unsafe { libc::syscall(libc::SYS_memfd_create, c"runner".as_ptr(), libc::MFD_CLOEXEC) };
    match descriptor {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: it is new, so nothing else owns it.
        descriptor => Ok(unsafe { File::from_raw_fd(descriptor as i32) }),
    }
}

#[cfg(not(target_os = "linux"))]
fn anonymous() -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

/// By which number other processes of this machine find an open file.
fn number(file: &File) -> Option<i32> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        Some(file.as_raw_fd())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// A file that another process has open.
fn open_of(process: u32, descriptor: i32) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let path = format!("/proc/{process}/fd/{descriptor}");
        // On another machine the number may be that of a pipe, which may never have a writer, or of a device.
        if !std::fs::metadata(&path)?.is_file() {
            return Err(ErrorKind::InvalidInput.into());
        }
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (process, descriptor);
        Err(ErrorKind::Unsupported.into())
    }
}

/// How long files may be, those in memory included (`ulimit -f`).
fn longest_file() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: it writes into that.
        match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
            0 => limit.rlim_cur,
            _ => 0,
        }
    }
    #[cfg(not(target_os = "linux"))]
    0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Bytes of each rank's own value, or of that of rank 0 for all.
    struct Filled {
        lengths: Vec<usize>,
        first: u8,
        same: bool,
    }

    impl Parcels for Filled {
        fn len(&self, to: usize) -> usize {
            self.lengths[to]
        }

        fn write(&self, to: usize, into: &mut [u8]) {
            assert_eq!(into.len(), self.lengths[to]);
            into.fill(self.first + if self.same { 0 } else { to as u8 });
        }

        fn same(&self) -> bool {
            self.same
        }
    }

    #[test]
    fn what_is_put_is_read_and_stays_until_the_next_but_one() {
        let mut outbox = Outbox::new().unwrap();
        let mut incoming = Incoming::open(&outbox.offer().unwrap()).unwrap();
        let mut before: Vec<(Message, Vec<u8>)> = Vec::new();
        // Longer than the areas at first, then shorter again.
        for (turn, len) in [SHORT, LEAST, 3 * LEAST + 5, 20 * LEAST, SHORT + 1].into_iter().enumerate() {
            let given = Filled { lengths: vec![len; 3], first: 10 * turn as u8, same: false };
            let places = outbox.put(&given, &[false, true, true]);
            assert!(places[0].is_none());
            let mut now = Vec::new();
            for to in [1, 2] {
                let place = places[to].unwrap();
                assert_eq!(Place::parse(&place.to_bytes()), Some(place));
                now.push((incoming.message(place).unwrap(), vec![10 * turn as u8 + to as u8; len]));
            }
            assert!(before.iter().chain(&now).all(|(message, expected)| message.bytes() == expected));
            before = now;
        }
    }

    #[test]
    fn what_all_are_given_lies_there_once_and_what_is_short_does_not() {
        let mut outbox = Outbox::new().unwrap();
        let same = Filled { lengths: vec![SHORT; 4], first: 5, same: true };
        let places = outbox.put(&same, &[true, false, true, true]);
        assert!(places[0].is_some() && places[1].is_none() && places[2..] == [places[0]; 2], "{places:?}");
        let mixed = Filled { lengths: vec![SHORT - 1, SHORT], first: 5, same: false };
        let places = outbox.put(&mixed, &[true, true]);
        assert!(places[0].is_none() && places[1].is_some(), "{places:?}");
        let short = Filled { lengths: vec![SHORT - 1; 2], first: 5, same: true };
        assert_eq!(outbox.put(&short, &[true, true]), [None; 2]);
    }

    #[test]
    fn what_is_no_area_and_no_place_is_refused() {
        let mut outbox = Outbox::new().unwrap();
        let offer = outbox.offer().unwrap();
        let mut other = offer.clone();
        other.key[0] ^= 1;
        assert!(Incoming::open(&other).is_none());
        // On another machine any kind of file may have that number: here a pipe without data.
        let (pipe, _writes) = std::io::pipe().unwrap();
        let other = Offer { areas: [std::os::fd::AsRawFd::as_raw_fd(&pipe), offer.areas[1]], ..offer.clone() };
        assert!(Incoming::open(&other).is_none());
        let mut incoming = Incoming::open(&offer).unwrap();
        let given = Filled { lengths: vec![SHORT], first: 5, same: true };
        let place = outbox.put(&given, &[true])[0].unwrap();
        for wrong in [
            Place { area: 2, ..place },
            Place { at: place.at + 1, ..place },
            Place { len: 2 * LEAST, ..place },
            Place { len: usize::MAX, ..place },
        ] {
            assert_eq!(incoming.message(wrong).unwrap_err().kind(), ErrorKind::InvalidData, "{wrong:?}");
        }
        assert_eq!(Place::parse(&[0; Place::BYTES - 1]), None);
        drop(outbox);
        assert!(Incoming::open(&offer).is_none());
        assert_eq!(incoming.message(place).unwrap().bytes(), [5; SHORT]);
    }
}
