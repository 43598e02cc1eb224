//! Memory for what is kept of keys, apart from all other memory.
//!
//! What keys need is taken by the ten thousand and stays, while almost everything that is allocated in between goes
//! again. On the common heap it would leave holes of every size, and whoever allocates anything would have to search
//! these: a service with a million keys spent a sixth of its time that way.
//!
//! A region is mostly as large as a large page, or several, and lies where these could. When it is full for the first
//! time, the system is asked to make large pages of it when it likes: what is not in any cache is then waited for once,
//! and not for the tables of pages as well. Not before, and it is told so, since a large page has to be emptied as a
//! whole, which takes longer than a decision may.
//!
//! One of the files with `unsafe` in them. What it relies on: a region is given back once, by its owner.

use std::ops::Range;
use std::ptr::NonNull;

/// Bytes of a large page, and what it is aligned to.
pub(super) const LARGE: usize = 2 << 20;

/// Memory whose bytes are zero at first, aligned to 128.
pub(super) struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// Whether large pages were asked for.
    is_enlarged: bool,
}

// SAFETY: a region is memory, which is everybody's; who may touch which part of it is for its users to say.
#[allow(unsafe_code, reason = "a pointer that is owned is no reason to stay on one thread")]
unsafe impl Send for Region {}

impl Region {
    /// `None` if there is no memory.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        Some(Self { start: system::map(bytes)?, bytes, is_enlarged: false })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Hears that all of it is in use.
    pub(super) fn fill(&mut self) {
        if self.bytes >= LARGE && !std::mem::replace(&mut self.is_enlarged, true) {
            system::enlarge(self.start, self.bytes);
        }
    }

    /// Makes bytes of it zero again, whole pages, so that they take no memory until they are touched. Nobody may be
    /// using them. `false` where the system cannot do that.
    pub(super) fn clear(&mut self, bytes: Range<usize>) -> bool {
        self.is_enlarged = false;
        let bytes = bytes.start.min(self.bytes)..bytes.end.min(self.bytes);
        // SAFETY: inside the region.
        #[allow(unsafe_code, reason = "a step inside the region")]
        let start = unsafe { self.start.add(bytes.start) };
        system::clear(start, bytes.len())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        system::unmap(self.start, self.bytes);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::LARGE;

    /// Memory that, until it is touched, is none.
    #[allow(unsafe_code, reason = "mapping memory has no safe name")]
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let spare = if bytes >= LARGE { LARGE } else { 0 };
        // SAFETY: new memory, wherever the system likes; with a large page more, it begins where one does.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes + spare, access, flags) }.ok()?;
        let before = if spare > 0 { start.addr().next_multiple_of(LARGE) - start.addr() } else { 0 };
        let after = spare - before;
        // SAFETY: both parts are inside what was mapped, and nobody knows of them. What is not unmapped is never
        // touched.
        let region = unsafe {
            let region = start.byte_add(before);
            let _stays = if before > 0 { munmap(start, before) } else { Ok(()) };
            let _stays = if after > 0 { munmap(region.byte_add(bytes), after) } else { Ok(()) };
            region
        };
        let region = NonNull::new(region.cast())?;
        if bytes >= LARGE {
            let _not_to_be_had = advise(region, bytes, Advice::LinuxNoHugepage);
        }
        Some(region)
    }

    /// Asks for large pages.
    pub(super) fn enlarge(region: NonNull<u8>, bytes: usize) {
        let _not_to_be_had = advise(region, bytes, Advice::LinuxHugepage);
    }

    pub(super) fn clear(region: NonNull<u8>, bytes: usize) -> bool {
        if bytes >= LARGE {
            let _not_to_be_had = advise(region, bytes, Advice::LinuxNoHugepage);
        }
        advise(region, bytes, Advice::LinuxDontNeed)
    }

    /// Gives advice. Systems that do not take it say so, which changes nothing.
    #[allow(unsafe_code, reason = "advice has no safe name")]
    fn advise(region: NonNull<u8>, bytes: usize, advice: Advice) -> bool {
        // SAFETY: advice about large pages changes nothing of what is in memory; what is not needed is zero afterwards,
        // and nobody is using it.
        unsafe { madvise(region.as_ptr().cast(), bytes, advice) }.is_ok()
    }

    #[allow(unsafe_code, reason = "as for mapping")]
    pub(super) fn unmap(region: NonNull<u8>, bytes: usize) {
        // SAFETY: it was mapped by `map`, nobody uses it, and it is unmapped once.
        let _stays = unsafe { munmap(region.as_ptr().cast(), bytes) };
    }
}

/// The same from the common heap.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::LARGE;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.max(1), if bytes >= LARGE { LARGE } else { 128 }).ok()
    }

    #[allow(unsafe_code, reason = "allocating without a type has no safe name")]
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: its size is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    pub(super) fn enlarge(_region: NonNull<u8>, _bytes: usize) {}

    pub(super) fn clear(_region: NonNull<u8>, _bytes: usize) -> bool {
        false
    }

    #[allow(unsafe_code, reason = "as for allocating")]
    pub(super) fn unmap(region: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: it came from `map`, with this layout, and is freed once.
            unsafe { dealloc(region.as_ptr(), layout) };
        }
    }
}
