package ptx

import "math/big"

// A format is a binary floating-point format.
type format struct {
	exponent, fraction int // bits
}

var formats = map[string]format{"f16": {5, 10}, "bf16": {8, 7}, "f32": {8, 23}, "f64": {11, 52}}

func (f format) bias() int        { return 1<<(f.exponent-1) - 1 }
func (f format) infinity() uint64 { return (1<<f.exponent - 1) << f.fraction }
func (f format) sign() uint64     { return 1 << (f.exponent + f.fraction) }
func (f format) isNaN(u uint64) bool {
	return u&^f.sign() > f.infinity()
}
func (f format) isInf(u uint64) bool    { return u&^f.sign() == f.infinity() }
func (f format) isFinite(u uint64) bool { return u&^f.sign() < f.infinity() }
func (f format) negative(u uint64) bool { return u&f.sign() != 0 }

// nan is the NaN that PTX gives; that of float64 may be any.
func (f format) nan() uint64 { return f.sign() - 1 }

// power is 2^e.
func power(e int) *big.Rat {
	r := big.NewRat(1, 1)
	if e >= 0 {
		r.SetInt(new(big.Int).Lsh(big.NewInt(1), uint(e)))
		return r
	}
	return r.SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), uint(-e)))
}

// value is what finite bits mean.
func (f format) value(u uint64) *big.Rat {
	fraction := u & (1<<f.fraction - 1)
	e := int(u >> f.fraction & (1<<f.exponent - 1))
	if e == 0 {
		e = 1
	} else {
		fraction |= 1 << f.fraction
	}
	r := new(big.Rat).SetInt(new(big.Int).SetUint64(fraction))
	r.Mul(r, power(e-f.bias()-f.fraction))
	if f.negative(u) {
		r.Neg(r)
	}
	return r
}

// roundEven is r rounded to an integer, ties to even.
func roundEven(r *big.Rat) *big.Int {
	twice := new(big.Int).Lsh(r.Num(), 1)
	twice.Add(twice, r.Denom())
	n, rest := new(big.Int).DivMod(twice, new(big.Int).Lsh(r.Denom(), 1), new(big.Int)) // floor(r + 1/2)
	if rest.Sign() == 0 && n.Bit(0) == 1 {
		n.Sub(n, big.NewInt(1))
	}
	return n
}

func roundZero(r *big.Rat) *big.Int {
	return new(big.Int).Quo(r.Num(), r.Denom())
}

// nearest gives the bits of the number of the format that is nearest to r, ties to
// even. A zero gets the sign of r if r is not 0, else plus.
func (f format) nearest(r *big.Rat) uint64 {
	sign := uint64(0)
	if r.Sign() < 0 {
		sign = f.sign()
		r = new(big.Rat).Neg(r)
	}
	if r.Sign() == 0 {
		return sign
	}
	// The exponent of the last place: that of r's first digit less the fraction, but
	// not below that of subnormals.
	e := r.Num().BitLen() - r.Denom().BitLen()
	if r.Cmp(power(e)) < 0 {
		e--
	}
	last := max(e, 1-f.bias()) - f.fraction
	n := roundEven(new(big.Rat).Mul(r, power(-last))).Uint64()
	if n == 1<<(f.fraction+1) {
		n >>= 1
		last++
	}
	if n < 1<<f.fraction {
		return sign | n // subnormal
	}
	biased := last + f.fraction + f.bias()
	if biased >= 1<<f.exponent-1 {
		return sign | f.infinity()
	}
	return sign | uint64(biased)<<f.fraction | n&(1<<f.fraction-1)
}

// signedValue is the integer of type t that the low bits of u mean.
func signedValue(u uint64, t string) *big.Int {
	info := types[t]
	bits := uint(8 * info.size)
	n := new(big.Int).SetUint64(u)
	n.And(n, mask(bits))
	if info.class == 's' && n.Bit(int(bits)-1) == 1 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), bits))
	}
	return n
}

func mask(bits uint) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), bits)
	return n.Sub(n, big.NewInt(1))
}

// truncated gives the low bits of n.
func truncated(n *big.Int, bits int) uint64 {
	return new(big.Int).And(n, mask(uint(bits))).Uint64()
}
