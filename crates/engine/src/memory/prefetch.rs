//! Asks the processor to fetch memory before it is needed.
//!
//! One of the files with `unsafe` in them. A prefetch is a hint: it reads and writes nothing, and an address where
//! there is no memory is ignored, so nothing can go wrong, whatever the address. Elsewhere than on x86-64 nothing
//! happens.

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Fetches the cache line of `address`, to be written soon: other processors give it up.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction has no safe name; it is harmless for every address")]
pub(super) fn prefetch(address: usize) {
    // `_mm_prefetch` fetches to read only, and the line would have to be asked for again.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: neither memory nor flags nor the stack change, and a prefetch never faults.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _unused = address;
}

/// Fetches the cache line of `address`, to be read soon: other processors keep it.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction has no safe name; it is harmless for every address")]
pub(crate) fn prefetch_to_read(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _unused = address;
}
