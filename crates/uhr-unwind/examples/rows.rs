use std::fs::File; use std::sync::Arc; use std::collections::BTreeMap;
fn main() {
  for path in std::env::args().skip(1) {
    let file = File::open(&path).unwrap();
    let elf = uhr_model::object::ElfFile::parse(&object::ReadCache::new(file.try_clone().unwrap())).unwrap();
    let m = uhr_unwind::UnwindModule::of_file(Arc::new(file), &elf);
    let t0 = std::time::Instant::now();
    let t = m.row_table();
    let dt = t0.elapsed();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut pages: BTreeMap<u64, usize> = BTreeMap::new();
    for (a, r) in t.rows() {
      *pages.entry(a >> 10).or_default() += 1;
      *kinds.entry(match r { uhr_unwind::SimpleRow::Uncovered=>"unc", uhr_unwind::SimpleRow::TooComplex=>"complex", uhr_unwind::SimpleRow::First=>"first", uhr_unwind::SimpleRow::FromSp{..}=>"sp", uhr_unwind::SimpleRow::FromBp{..}=>"bp", uhr_unwind::SimpleRow::SavedAtBp{..}=>"saved", uhr_unwind::SimpleRow::Plt{..}=>"plt", uhr_unwind::SimpleRow::SignalFrame=>"signal"}).or_default() += 1;
    }
    println!("{path}: {} rows in {:?} = {:.1} M/s, max a page {:?}, mean {:.1} {:?}", t.rows().len(), dt, t.rows().len() as f64/dt.as_secs_f64()/1e6, pages.values().max(), t.rows().len() as f64/pages.len() as f64, kinds);
  }
}
