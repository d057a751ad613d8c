#!/usr/bin/env bash
# plan: the answer in the first line; wrong usage is one line and exit code 2;
# --json is valid; a large model costs little memory to plan.
. tests/tools/tool_test.sh tools/plan
plan=$tool

# answers FIRST_LINE FLAGS...: exit code 0, nothing on stderr, 80 columns.
answers() {
  local first=$1
  shift
  "$plan" memory "$@" >out 2>err || fail "exit code $? for $*: $(cat err)"
  [ ! -s err ] || fail "stderr for $*: $(cat err)"
  case $(head -n 1 out) in
    "$first"*) ;;
    *) fail "'$(head -n 1 out)' for $*, expected $first" ;;
  esac
  ! grep -qE '^.{81}' out || fail "wider than 80 columns for $*"
}

llama="--model llama3-8b --ranks 64 --recompute full --seq 8192 --batch 1"
answers "fits: llama3-8b needs" $llama --zero 1 --device-gb 80
grep -q "parameters, all-gather" out || fail "no volume of the parameters"
grep -q "optimizer state in place of parameters" out ||
  fail "no volume of the optimizer state"
answers "does not fit: llama3-8b needs" $llama --zero 0 --device-gb 80
grep -q "^because of optimizer state" out || fail "no reason"
grep -q -- "--zero 1 .*fits" out || fail "no remedy"
answers "does not fit" --model gpt2-xl --precision f32 --optimizer momentum \
  --partition tensor --attention full --recompute every-2 --bucket-mb 1 \
  --device-gb 0.5
grep -q "partition tensor" out || fail "no partition tensor"
answers "fits" --model smollm2-360m --ranks 4 --zero 1 --partition balanced
grep -q "partition balanced" out || fail "no partition balanced"
grep -q "parameters, broadcasts" out || fail "no volume of broadcasts"

# The published rule: runs of 73, 73, 73 and 72 tensors would be with a head.
"$plan" shards --model smollm2-360m --ranks 4 --partition tensor >out 2>err ||
  fail "plan shards: $(cat err)"
grep -q "^by tensor: 4 shards of 290 tensors" out || fail "no plan of shards"
grep -q "^ *0 .* 34.8 % " out || fail "no share of rank 0: $(cat out)"
grep -q "^imbalance 1.39x: rank 0" out || fail "no imbalance"
! grep -qE '^.{81}' out || fail "shards: wider than 80 columns"
"$plan" shards --model smollm2-360m --ranks 4 --partition tensor \
  --json shards.json >text 2>err || fail "plan shards --json: $(cat err)"
cmp -s out text || fail "plan shards prints something else with --json"
"$plan" shards --model smollm2-360m --ranks 4 --partition tensor --json - |
  cmp -s - shards.json || fail "plan shards: --json - and --json FILE differ"
python3 - shards.json text <<'END' || fail "plan shards: $(cat text shards.json)"
import json, sys
plan = json.load(open(sys.argv[1]))
shards = plan["shards"]
rows = [l.split() for l in open(sys.argv[2]) if l.split()[0].isdigit()]
assert [[str(s["rank"]), str(s["bytes"]), "%.1f" % s["percent"], "%",
         str(s["pieces"])] for s in shards] == rows
assert sum(s["bytes"] for s in shards) == plan["bytes"] == 723642240
assert "%.2f" % plan["imbalance"] == "1.39"
assert plan["options"]["model"] == "smollm2-360m" and plan["tensors"] == 290
END
refuses "ranks is 0" shards --model gpt2 --ranks 0
refuses "--zero" shards --model gpt2 --zero 1

# A config.json, by itself and by its folder.
mkdir -p model
cat >model/config.json <<'END'
{"model_type": "llama", "vocab_size": 49152, "max_position_embeddings": 8192,
 "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32,
 "num_attention_heads": 15, "num_key_value_heads": 5,
 "tie_word_embeddings": true}
END
answers "fits: model/config.json" --model model/config.json
grep -q "^361821120 parameters" out || fail "parameters of a config.json"
answers "fits: model" --model model

# All figures, alone on stdout or in a file.
"$plan" memory $llama --zero 1 --json - >out 2>err || fail "--json -"
[ "$(head -c 1 out)" = "{" ] || fail "--json - prints more than JSON"
"$plan" memory $llama --zero 1 --json plan.json >text || fail "--json FILE"
cmp -s out plan.json || fail "--json - and --json FILE differ"
[ "$(tail -n 1 plan.json)" = "}" ] || fail "half a JSON file"
head -n 1 text | grep -q "^fits" || fail "no text beside --json FILE"

refuses "subcommand"
refuses "--model" memory
refuses "is no preset and no file" memory --model missing
refuses "is no preset and no file" memory --model .
refuses "zero is 4, expected 0 to 3" memory --model gpt2 --zero 4
refuses "ranks is 0" memory --model gpt2 --ranks 0
refuses "--ranks" memory --model gpt2 --ranks many
refuses "batch is 0" memory --model gpt2 --batch 0
refuses "--seq" memory --model gpt2 --seq 0
refuses "expected 1024 at most" memory --model gpt2 --seq 2048
refuses "device-gb is -1" memory --model gpt2 --device-gb -1
refuses "device-gb is nan" memory --model gpt2 --device-gb nan
refuses "bucket-mb is 0" memory --model gpt2 --bucket-mb 0
refuses "recompute" memory --model gpt2 --recompute half
refuses "precision is 'f16'" memory --model gpt2 --precision f16
refuses "optimizer is 'lion'" memory --model gpt2 --optimizer lion
refuses "partition is 'even', expected one of flat, tensor, balanced" memory --model gpt2 --partition even
refuses "attention is 'slow'" memory --model gpt2 --attention slow
refuses "--nonsense" memory --model gpt2 --nonsense
refuses "cannot write --json" memory --model gpt2 --json no/such/out.json
echo '{"model_type": "llama"}' >config.json
refuses "config.json: 'vocab_size' is missing" memory --model config.json

# 50 MB of address space, libraries included.
(
  ulimit -v 50000
  exec "$plan" memory --model llama3-70b --ranks 1024 --zero 3
) >out 2>err || fail "more than 50 MB: $(cat err)"

# What cannot be printed has not been answered.
for json in "" -; do
  "$plan" memory --model gpt2 ${json:+--json $json} >/dev/full 2>err
  [ $? = 1 ] || fail "exit code of a full device"
  grep -q "could not be written" err || fail "no reason: $(cat err)"
done

"$plan" --help >out 2>err || fail "--help"
grep -q Example out || fail "--help shows no example"

[ "$failures" = 0 ]
