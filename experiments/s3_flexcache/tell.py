def tell(r):
    raise SystemExit(0)
