//! uhr-query
