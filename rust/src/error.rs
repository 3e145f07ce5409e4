//! Errors of the crate.

use core::fmt;

use crate::sys;

/// A refused call; [`code`](Error::code) is the errno.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(sys::c_int);

impl Error {
    /// Memory is exhausted, or a limit refuses.
    pub const OUT_OF_MEMORY: Error = Error(sys::ENOMEM);

    /// The errno, such as `libc::ENOMEM`.
    pub fn code(self) -> i32 {
        self.0
    }

    pub(crate) fn last() -> Error {
        Error(sys::errno())
    }

    /// Converts the result of functions that return 0 or a negative errno.
    pub(crate) fn check(result: sys::c_int) -> Result<(), Error> {
        if result == 0 {
            Ok(())
        } else {
            Err(Error(-result))
        }
    }
}

fn text(code: i32) -> &'static str {
    match code {
        2 => "the group is offline",
        12 => "out of memory, or beyond a limit",
        16 => "there are groups below it, or it is the root",
        22 => "invalid argument",
        95 => "not to be had in this program",
        _ => "refused",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (errno {})", text(self.0), self.0)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {})", self.0, text(self.0))
    }
}

/// The value of a failed allocation, returned to the caller.
pub struct Refused<T>(pub T);

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refused(out of memory, or beyond a limit)")
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory, or beyond a limit")
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(_: Refused<T>) -> Error {
        Error::OUT_OF_MEMORY
    }
}

#[cfg(feature = "std")]
impl std::error::Error for Error {}

#[cfg(feature = "std")]
impl<T> std::error::Error for Refused<T> {}

#[cfg(feature = "std")]
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        std::io::Error::from_raw_os_error(error.0)
    }
}
