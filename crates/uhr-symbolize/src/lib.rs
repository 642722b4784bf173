//! uhr-symbolize
