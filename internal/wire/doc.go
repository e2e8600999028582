// Package wire gives engine messages their form on the wire, and reads them
// back: protobuf inside CloudEvents, one event for each message, as
// api/argocdagent/v1/sync.proto documents it.
//
// What arrives is hostile until it has been through Decode: every size, count
// and name is checked while it is parsed, and memory is taken for what is there,
// never for what a peer claims. Encode holds to the same limits, so that nothing
// leaves that the other end would refuse.
//
// The code reads and writes protobuf by hand, on protowire, rather than through
// the generated types. Copying fields between those and the engine's would take
// as many lines; this way limits hold before memory is taken, content is copied
// once and no more, and tests prove that the bytes are those of the generated
// code.
package wire
