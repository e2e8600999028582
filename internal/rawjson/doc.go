// Package rawjson reads and edits JSON without decoding what it does not need.
//
// Kubernetes objects pass through this product as the bytes in which they arrived. A field that this release does not
// know must stay as it is, and a hash of content must not depend on the fields of a Go type. So there are no Go types
// here, only bytes: lookup by path, an object split into members, edits that leave everything else unchanged, and a
// canonical form in which equal content has equal bytes.
//
// Nothing here panics on hostile input, and nothing recurses deeper than MaxDepth.
package rawjson
