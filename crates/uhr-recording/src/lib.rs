//! uhr-recording
