// Package raw reads and edits JSON without decoding what it does not need.
//
// Objects of Kubernetes pass through this product as the bytes in which they
// arrived: a field that this build has never heard of must come out as it went
// in, and a hash over content must not depend on which fields a Go type knows.
// So there are no Go types here, only bytes: lookup by path, an object split
// into members, edits that leave everything else alone, and a canonical form in
// which equal content has equal bytes.
//
// Nothing here panics on hostile input, and nothing recurses deeper than
// MaxDepth.
package rawjson
