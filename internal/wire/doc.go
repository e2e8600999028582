// Package wire encodes engine messages as protobuf inside CloudEvents, one event for each message, and decodes them.
// api/argocdagent/v1/sync.proto documents the format.
//
// Every input is hostile until Decode has checked it. A table has a rule for each field: size, number of entries, form.
// Decode checks the bytes of a message against the table before it uses the generated types, so that a peer cannot make
// it allocate memory for what the rules forbid. Encode checks its result in the same way, so that it sends nothing that
// the peer would reject.
//
// The envelope is read without the generated type, which would copy each message once more and allocate memory for all
// attributes that a peer adds. Decoding into generated types takes 2 to 4 times as long as a hand-written decoder did: a
// Delta of 128 items with 2 KiB each takes 0.6 ms. This is below 1 % of the time to write these items to an API server,
// so that it does not justify a decoder of our own.
package wire
