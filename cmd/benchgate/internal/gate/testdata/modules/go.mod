module modules

go 1.26

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/gobwas/glob v0.2.3
	github.com/google/btree v1.1.3
	github.com/google/uuid v1.6.0
	github.com/hashicorp/golang-lru/v2 v2.0.7
	github.com/mattn/go-runewidth v0.0.16
	github.com/oklog/ulid/v2 v2.1.0
	github.com/rivo/uniseg v0.4.7
	github.com/shopspring/decimal v1.4.0
	github.com/spaolacci/murmur3 v1.1.0
)
