//! uhr-collect
