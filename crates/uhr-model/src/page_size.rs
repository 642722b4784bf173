use crate::codes::codes;

codes! {
    /// How large the page is that a page fault brought.
    PageSize {
        /// The kernel does not tell (before Linux 6.7), or the process was gone.
        Unknown = 0 "unknown",
        /// The smallest there is: 4 KiB on x86-64.
        Base = 1 "base",
        /// One that the kernel maps as a whole, 2 MiB or more: a transparent huge page, or one of hugetlbfs.
        Huge = 2 "huge",
    }
}
